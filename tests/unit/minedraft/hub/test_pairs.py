"""A pair from nothing: fetched, converted, assembled, and at once the second time."""

from __future__ import annotations

import hashlib
import json
import shutil
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from minedraft.errors import ConfigError
from minedraft.hub import pairs, sources
from minedraft.hub.pairs import Pair, checkout_root, ensure_pair
from minedraft.hub.progress import no_progress
from minedraft.hub.sources import PAIRS, GgufModel, PairSource, SharedLayers
from minedraft.model_files.model_hub import HubFile
from tests.unit.minedraft.hub.test_gguf_to_safetensors import make_model
from tests.unit.minedraft.hub.tiny_gguf import write_gguf


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A table with one tiny pair, a checkout with its layers, and a counting source of GGUF."""
    model = make_model("llama")
    write_gguf(tmp_path / "source.gguf", model)
    data = (tmp_path / "source.gguf").read_bytes()
    target = GgufModel(
        "tiny",
        "tiny.gguf",
        hashlib.sha256(data).hexdigest(),
        len(data),
        (),
        (2,),
        HubFile("no/body", "t"),
    )
    row = PairSource(target, SharedLayers("tiny-draft", "models/tiny-draft"))
    monkeypatch.setattr(sources, "PAIRS", MappingProxyType({"tiny": row}))
    fetched = []

    def fetch(model, downloads, *, progress):
        fetched.append(model.name)
        downloads.mkdir(exist_ok=True)
        return shutil.copyfile(tmp_path / "source.gguf", downloads / model.filename)

    monkeypatch.setattr(pairs, "fetch_file", fetch)
    layers = tmp_path / "checkout/models/tiny-draft"
    layers.mkdir(parents=True)
    model.config.num_hidden_layers = 1
    model.config.save_pretrained(layers)
    keep = ("model.layers.0.", "model.norm.")
    weights = {k: v.contiguous() for k, v in model.state_dict().items() if k.startswith(keep)}
    save_file(weights, layers / "model.safetensors")
    monkeypatch.setattr(pairs, "checkout_root", lambda: tmp_path / "checkout")
    return SimpleNamespace(cache=tmp_path / "cache", fetched=fetched, layers=layers)


def ensure(world):
    return ensure_pair("tiny", cache_dir=world.cache, progress=no_progress)


def test_both_models_load_and_the_download_is_gone(world):
    pair = ensure(world)
    assert pair == Pair(world.cache / "models/tiny", world.cache / "models/tiny-draft")
    ids = torch.tensor([[1, 5, 9]])
    for directory, layers in ((pair.target_dir, 2), (pair.draft_dir, 1)):
        model = AutoModelForCausalLM.from_pretrained(directory)
        assert model.config.num_hidden_layers == layers
        assert torch.isfinite(model(ids).logits).all()
    assert list((world.cache / "downloads").iterdir()) == []


def test_the_second_call_fetches_and_converts_nothing(world):
    pair = ensure(world)
    before = (pair.target_dir.stat().st_ino, pair.draft_dir.stat().st_ino)
    assert ensure(world) == pair
    assert (pair.target_dir.stat().st_ino, pair.draft_dir.stat().st_ino) == before
    assert world.fetched == ["tiny"]


def test_retrained_layers_are_assembled_anew(world):
    pair = ensure(world)
    weights = load_file(world.layers / "model.safetensors")
    weights["model.norm.weight"] += 1
    save_file(weights, world.layers / "model.safetensors")
    ensure(world)
    found = load_file(pair.draft_dir / "model.safetensors")["model.norm.weight"]
    assert torch.equal(found.float(), weights["model.norm.weight"])
    assert world.fetched == ["tiny"]


def test_a_directory_made_from_another_file_is_made_anew(world):
    pair = ensure(world)
    path = pair.target_dir / "minedraft_source.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gguf_sha256": "0" * 64}))
    ensure(world)
    assert world.fetched == ["tiny", "tiny"]


def test_without_a_checkout_the_error_says_what_to_do(world):
    (world.layers / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"Run from a checkout .*minedraft distill"):
        ensure(world)


def test_a_disk_too_small_is_said_before_the_download(world, monkeypatch):
    monkeypatch.setattr(pairs.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(ConfigError, match=r"0\.0 GB free, tiny needs"):
        ensure(world)
    assert world.fetched == []


def test_an_unknown_pair_is_refused_before_any_work(world):
    with pytest.raises(ConfigError, match="'nope'"):
        ensure_pair("nope", cache_dir=world.cache)
    assert not world.cache.exists()


def test_the_checkout_carries_the_layers_that_the_table_names():
    draft = PAIRS["smollm2"].draft
    directory = checkout_root() / draft.checkout_path
    names = load_file(directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    assert len({n.split(".")[2] for n in names if "layers" in n}) == config["num_hidden_layers"]
    assert not [n for n in names if "embed" in n or "lm_head" in n]
    assert (directory / "LICENSE").exists()
