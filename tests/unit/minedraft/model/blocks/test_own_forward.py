from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.model.blocks.own_forward import own_attention, widened
from tests.tiny_families import FAMILIES, own_logits, save_family

IDS = list(range(20))


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "gemma3_window"])
def test_a_narrow_model_computes_as_its_widened_copy_and_is_narrow_again(name, tmp_path):
    path = save_family(name, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    model.save_pretrained(path)
    before = {name: (p.data_ptr(), p.dtype) for name, p in model.named_parameters()}
    with torch.inference_mode(), own_attention(model), widened(model, torch.float32):
        got = model(torch.tensor([IDS]), use_cache=False).logits[0]
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, own_logits(path, IDS), rtol=1e-5, atol=1e-4)
    assert {name: (p.data_ptr(), p.dtype) for name, p in model.named_parameters()} == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_an_embedding_whose_padding_is_beyond_the_rows_of_a_call_is_widened():
    embedding = torch.nn.Embedding(300, 4, padding_idx=250).to(torch.bfloat16)
    with torch.inference_mode(), widened(embedding, torch.float32):
        got = embedding(torch.tensor([[7, 250]]))
    assert torch.equal(got[0], embedding.weight[[7, 250]].float())
    assert embedding.padding_idx == 250


def test_weights_are_narrow_again_after_a_failure():
    model = AutoModelForCausalLM.from_config(FAMILIES["llama"]()).to(torch.bfloat16)
    model.get_decoder().layers[1].mlp.down_proj.register_forward_pre_hook(_fail)
    with pytest.raises(ZeroDivisionError), widened(model, torch.float32):
        model(torch.tensor([IDS]), use_cache=False)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def _fail(*_):
    raise ZeroDivisionError
