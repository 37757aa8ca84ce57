from __future__ import annotations

import json
import os
import struct

import pytest

from minedraft.errors import ModelError
from minedraft.model.directory import open_directory
from tests.gguf_models import to_gguf
from tests.quantised_models import quantise
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


def test_a_hub_id_is_fetched_and_gives_the_name(llama, monkeypatch):
    monkeypatch.setattr("minedraft.model.directory.fetch_snapshot", {"who/m": llama}.__getitem__)
    assert open_directory("who/m").name == "who/m"


def test_a_hub_that_cannot_be_reached_is_a_model_error(monkeypatch):
    def fail(_hub_id):
        raise ModelError("the hub says: offline")

    monkeypatch.setattr("minedraft.model.directory.fetch_snapshot", fail)
    with pytest.raises(ModelError, match=r"someone/some-model: .*offline"):
        open_directory("someone/some-model")


def edit(llama, **fields):
    file = llama / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        ("models--Qwen--Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B"),
        ("models--gpt2", "gpt2"),
        ("datasets--a--b", "e7da7f221d5bf496a48136c0cd264e630fe9fcc8"),
        ("models--", "e7da7f221d5bf496a48136c0cd264e630fe9fcc8"),
    ],
)
def test_a_snapshot_of_the_hubs_cache_is_named_by_its_repository(tmp_path, repository, name):
    commit = "e7da7f221d5bf496a48136c0cd264e630fe9fcc8"
    snapshot = make_tiny_llama(tmp_path / repository / "snapshots" / commit)
    assert open_directory(snapshot).name == name
    (tmp_path / "link").symlink_to(snapshot)
    assert open_directory(tmp_path / "link").name == name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 2**40}, r"config\.json: hidden_size is 1099511627776, want"),
        ({"num_hidden_layers": 10**9}, r"config\.json: num_hidden_layers is 1000000000, want"),
        ({"num_hidden_layers": 900}, "num_hidden_layers is 900, want at most one per tensor"),
        ({"vocab_size": 4 * 10**6}, "vocab_size 4000000 x hidden_size 64 is more than"),
        ({"vocab_size": 299}, r"vocab_size is 299, want at least 300, the ids of tokenizer\.json"),
        ({"_attn_implementation": "kernels-community/x"}, "_attn_implementation is 'kernels"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_unloaded(llama, fields, message):
    edit(llama, **fields)
    with pytest.raises(ModelError, match=message):
        open_directory(llama)


def test_an_adapter_is_refused(llama):
    (llama / "adapter_config.json").write_text('{"base_model_name_or_path": "x/y"}')
    with pytest.raises(ModelError, match=r"adapter_config\.json: is there"):
        open_directory(llama)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "adapter_config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ],
)
def test_no_file_is_opened_that_would_block_and_no_pointer_is_taken_for_a_file(llama, name):
    (llama / name).unlink(missing_ok=True)
    os.mkfifo(llama / name)
    with pytest.raises(ModelError, match=rf"{name}: is a FIFO, want a regular file"):
        open_directory(llama)
    (llama / name).unlink()
    (llama / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    with pytest.raises(ModelError, match=rf"{name}: is"):
        open_directory(llama)


def test_weights_cut_short_are_refused_unloaded(llama):
    file = llama / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors: size is \d+, want \d+ bytes"):
        open_directory(llama)
    file.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(ModelError, match=r"model\.safetensors: length of the header is"):
        open_directory(llama)


def test_a_quantised_directory_says_how_and_which_layers(llama):
    quantise(llama, "gptq")
    directory = open_directory(llama)
    assert directory.is_quantised
    assert directory.quantisation_words == "int4 (gptq, groups of 32)"
    assert len(directory.layers) == 14
    assert directory.dense_bytes == 4 * (2 * 300 + 5) * 64 + 2 * 2 * (
        6 * 64 * 64 + 3 * 64 * 128
    ) - (2 * 2 * 3 * 64 * 64)


def test_one_gguf_file_stands_for_safetensors(llama):
    to_gguf(llama, "Q8_0")
    directory = open_directory(llama)
    assert (directory.quantisation, directory.quantisation_words) == (None, "gguf (Q8_0)")
    assert directory.is_quantised


def test_safetensors_win_over_a_gguf_file_beside_them(llama):
    (llama / "model.gguf").write_bytes(b"no GGUF at all")
    assert not open_directory(llama).is_quantised


def test_two_gguf_files_are_refused_by_name(llama):
    to_gguf(llama, "Q8_0")
    (llama / "other.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"2 GGUF files \(model\.gguf, other\.gguf\), want one"):
        open_directory(llama)


def test_a_gguf_file_of_another_architecture_is_refused(llama):
    to_gguf(llama, "Q8_0", architecture="qwen2")
    with pytest.raises(ModelError, match=r"general\.architecture is 'qwen2', want 'llama'"):
        open_directory(llama)


def test_a_gguf_file_that_is_cut_is_refused(llama):
    to_gguf(llama, "Q8_0")
    content = (llama / "model.gguf").read_bytes()
    (llama / "model.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"model\.gguf: .*: end is .*, the size of the file"):
        open_directory(llama)


def test_settings_of_a_quantisation_that_no_tensor_has_are_refused(llama):
    edit(llama, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 32})
    with pytest.raises(ModelError, match="says awq, and no tensor is qweight of I32"):
        open_directory(llama)


@pytest.mark.parametrize("form", ["gptq", "ct_int4", "fp8"])
def test_quantised_weights_without_their_settings_are_refused(llama, form):
    quantise(llama, form)
    edit(llama, quantization_config=None)
    with pytest.raises(
        ModelError, match=r"quantization_config is null, want the settings of model"
    ):
        open_directory(llama)
