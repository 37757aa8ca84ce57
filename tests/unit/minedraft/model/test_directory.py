from __future__ import annotations

import pytest

from minedraft.errors import ModelError
from minedraft.model.directory import open_directory
from tests.tiny_models import make_tiny_llama


@pytest.fixture
def llama(tmp_path):
    return make_tiny_llama(tmp_path / "llama")


@pytest.mark.parametrize("suffix", ["pytorch_model.bin", "consolidated.00.pth", "m.pt", "x.ckpt"])
def test_pickle_weights_alone_are_refused_by_name(llama, suffix):
    (llama / "model.safetensors").rename(llama / suffix)
    with pytest.raises(ModelError, match=f"pickle weights \\({suffix}\\)"):
        open_directory(llama)


def test_pickles_beside_safetensors_are_ignored(llama):
    (llama / "pytorch_model.bin").write_bytes(b"x")
    assert open_directory(llama).path == llama


def test_no_weights_at_all_are_refused(llama):
    (llama / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no \*\.safetensors"):
        open_directory(llama)


def test_a_missing_shard_is_named(llama):
    (llama / "model.safetensors").rename(llama / "model-00001-of-00002.safetensors")
    (llama / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "model-00001-of-00002.safetensors",'
        ' "b": "model-00002-of-00002.safetensors"}}'
    )
    with pytest.raises(ModelError, match="missing shards: model-00002-of-00002"):
        open_directory(llama)


@pytest.mark.parametrize("content", [None, "{", "[1]", b"\xff\xfe"])
def test_a_config_that_cannot_be_read_is_refused(llama, content):
    file = llama / "config.json"
    file.unlink()
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        open_directory(llama)
    assert str(llama) in str(caught.value)


def test_a_missing_directory_is_not_looked_up_on_the_hub(tmp_path):
    with pytest.raises(ModelError, match=r"no such directory.*minedraft fetch"):
        open_directory(tmp_path / "nowhere")


def test_a_file_is_not_a_directory(llama):
    with pytest.raises(ModelError, match="not a directory"):
        open_directory(llama / "config.json")


def test_a_hub_id_fetches_no_pickles_and_no_code(llama, monkeypatch):
    asked = {}

    def fetch(hub_id, *, allow_patterns):
        asked.update(hub_id=hub_id, patterns=allow_patterns)
        return str(llama)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert open_directory("someone/some-model").name == "someone/some-model"
    assert asked["hub_id"] == "someone/some-model"
    assert not any("bin" in p or "py" in p or p == "*" for p in asked["patterns"])


def test_a_hub_that_cannot_be_reached_is_a_model_error(monkeypatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fetch(hub_id, *, allow_patterns):
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    with pytest.raises(ModelError, match=r"someone/some-model.*offline"):
        open_directory("someone/some-model")
