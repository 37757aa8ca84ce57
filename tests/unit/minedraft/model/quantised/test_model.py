"""Every format, read from disk: the weights that its definition gives, packed or dequantised."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from minedraft.errors import ModelError
from minedraft.model.directory import open_directory
from minedraft.model.quantised.linear import QuantisedLinear
from minedraft.model.quantised.model import read_quantised_model
from tests.gguf_models import to_gguf
from tests.quantised_models import DENSE_FORMS, FORMS, edit_config, edit_tensors, quantise
from tests.tiny_models import make_tiny_llama

GGUF = ("Q8_0", "Q4_K")


def written(directory, form):
    """A tiny model in this format, and the weights that it stands for."""
    if form in GGUF:
        path = make_tiny_llama(directory, hidden=256, layers=1)
        return path, to_gguf(path, form)
    path = make_tiny_llama(directory)
    return path, quantise(path, form)


def load(path, *, packed, dtype=torch.float32):
    model, report = read_quantised_model(open_directory(path), dtype, packed=packed)
    assert not any(report.values())
    return model


@pytest.mark.parametrize("form", [*FORMS, *GGUF])
def test_the_weights_are_those_of_the_definition(tmp_path, form):
    path, meant = written(tmp_path / "m", form)
    dense, packed = (load(path, packed=packed) for packed in (False, True))
    for name, wanted in meant.items():
        module = packed.get_submodule(name.removesuffix(".weight"))
        assert isinstance(module, QuantisedLinear) == (form not in DENSE_FORMS)
        weight = (
            module.grouped.dequantised() if isinstance(module, QuantisedLinear) else module.weight
        )
        assert np.array_equal(weight.detach().float().numpy(), wanted.astype(np.float32))
        assert torch.equal(weight.float(), dense.get_parameter(name))


@pytest.mark.parametrize("form", ["gptq", "Q4_K"])
def test_packed_logits_are_those_of_the_dequantised_model(tmp_path, form):
    path, _ = written(tmp_path / "m", form)
    ids = torch.arange(3, 40)[None]
    logits = []
    for packed in (False, True):
        model = load(path, packed=packed)
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            logits.append(model.eval()(ids).logits)
    torch.testing.assert_close(*logits, rtol=1e-5, atol=1e-4)  # sums have no fixed order here
    assert logits[0].std() > 0.1


def test_a_quantised_head_takes_the_place_of_a_tied_one(tmp_path):
    path = make_tiny_llama(tmp_path / "m")
    file = path / "model.safetensors"
    tensors = load_file(file)
    tensors["x_proj.weight"] = tensors.pop("lm_head.weight")[:256]
    edit_config(path, vocab_size=256, tie_word_embeddings=True)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:256].contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    meant = quantise(path, "gptq")
    renamed = {n.replace("x_proj", "lm_head"): t for n, t in load_file(file).items()}
    save_file(renamed, file, metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    head = load(path, packed=True).lm_head
    assert isinstance(head, QuantisedLinear)
    wanted = meant["x_proj.weight"].astype(np.float32)
    assert np.array_equal(head.grouped.dequantised().numpy(), wanted)


def test_biases_that_are_zero_are_ignored_and_others_refused(tmp_path):
    path, _ = written(tmp_path / "m", "gptq")
    file = path / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.0.mlp.up_proj.bias"] = torch.zeros(128)
    save_file(tensors, file, metadata={"format": "pt"})
    read_quantised_model(open_directory(path), torch.float32, packed=True)
    edit_tensors(path, bias=lambda bias: bias + 1)
    with pytest.raises(ModelError, match=r"up_proj\.bias has no place in the model"):
        read_quantised_model(open_directory(path), torch.float32, packed=True)


def test_a_layer_of_another_size_than_config_json_says_is_refused(tmp_path):
    path, _ = written(tmp_path / "m", "gptq")
    edit_config(path, intermediate_size=96)
    with pytest.raises(ModelError, match="has 128 x 64 quantised weights, want 96 x 64"):
        read_quantised_model(open_directory(path), torch.float32, packed=True)


def test_what_is_not_quantised_stays_as_it_is(tmp_path):
    path, _ = written(tmp_path / "m", "ct_int4")
    model = load(path, packed=True, dtype=torch.bfloat16)
    assert type(model.lm_head) is nn.Linear
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.model.norm.weight.dtype == torch.bfloat16
