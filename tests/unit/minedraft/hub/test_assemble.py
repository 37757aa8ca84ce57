"""A draft model of shared layers: complete afterwards, or refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from minedraft.errors import ModelError
from minedraft.hub.assemble import assemble, read_tensors
from tests.tiny_models import make_tiny_llama


@pytest.fixture
def target(tmp_path):
    return make_tiny_llama(tmp_path / "target", layers=3)


@pytest.fixture
def layers(tmp_path, target):
    """One layer and the norm of another model, without embedding and head."""
    directory = make_tiny_llama(tmp_path / "layers", layers=1, seed=7, tokenizer_size=0)
    keep = {
        name: value
        for name, value in load_file(directory / "model.safetensors").items()
        if not name.startswith(("model.embed_tokens", "lm_head"))
    }
    save_file(keep, directory / "model.safetensors")
    return directory


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def edit(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_layers_are_its_own_and_all_else_is_the_targets(target, layers, out):
    assemble(layers, target, out)
    model = AutoModelForCausalLM.from_pretrained(out)
    theirs = load_file(target / "model.safetensors")
    ours = load_file(layers / "model.safetensors")
    assert model.config.num_hidden_layers == 1
    assert torch.equal(model.lm_head.weight, theirs["lm_head.weight"])
    assert torch.equal(model.model.embed_tokens.weight, theirs["model.embed_tokens.weight"])
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(model.state_dict()[name], ours[name])
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (out / file).read_bytes() == (target / file).read_bytes()


def test_a_tied_head_is_stored_once(target, layers, out):
    for directory in (target, layers):
        edit(directory, tie_word_embeddings=True)
    assemble(layers, target, out)
    assert "lm_head.weight" not in load_file(out / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_the_type_is_the_targets(target, layers, out):
    edit(target, dtype="bfloat16")
    assemble(layers, target, out)
    assert {v.dtype for v in load_file(out / "model.safetensors").values()} == {torch.bfloat16}


def test_a_sharded_target_will_do(target, layers, out):
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    first = {"lm_head.weight": weights.pop("lm_head.weight")}
    save_file(first, target / "model-1.safetensors")
    save_file(weights, target / "model-2.safetensors")
    index = dict.fromkeys(weights, "model-2.safetensors") | dict.fromkeys(
        first, "model-1.safetensors"
    )
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assemble(layers, target, out)
    assert torch.equal(
        load_file(out / "model.safetensors")["lm_head.weight"], first["lm_head.weight"]
    )


@pytest.mark.parametrize(
    ("field", "value"), [("vocab_size", 301), ("hidden_size", 32), ("tie_word_embeddings", True)]
)
def test_layers_of_another_target_are_refused_by_field_and_value(target, layers, out, field, value):
    edit(layers, **{field: value})
    with pytest.raises(ModelError, match=rf"{field} is {value}"):
        assemble(layers, target, out)


def test_a_missing_tensor_is_named(target, layers, out):
    weights = load_file(layers / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, layers / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        assemble(layers, target, out)


def test_a_tensor_of_another_shape_is_named(target, layers, out):
    weights = load_file(layers / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(3)
    save_file(weights, layers / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.norm\.weight has shape \(3,\)"):
        assemble(layers, target, out)


def test_damaged_weights_are_named(target, layers, out):
    (layers / "model.safetensors").write_bytes(b"pickle?")
    with pytest.raises(ModelError, match="damaged"):
        assemble(layers, target, out)


def test_a_directory_without_weights_or_config_is_named(target, layers, out, tmp_path):
    (layers / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"layers has no model\.safetensors"):
        assemble(layers, target, out)
    with pytest.raises(ModelError, match=r"nowhere: config\.json"):
        assemble(tmp_path / "nowhere", target, out)


def test_reading_a_tensor_that_is_not_there_names_it(target):
    with pytest.raises(ModelError, match="no tensor q"):
        read_tensors(target, ["q"])
