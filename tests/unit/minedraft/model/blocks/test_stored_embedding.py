from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.model.blocks.stored_embedding import StoredEmbedding, store_embeddings
from tests.tiny_families import FAMILIES


@pytest.mark.parametrize("name", ["llama", "gemma2_softcap"])
@torch.inference_mode()
def test_rows_are_widened_and_scaled_as_the_embedding_scales_them(name):
    torch.manual_seed(0)
    own = AutoModelForCausalLM.from_config(FAMILIES[name]()).get_input_embeddings()
    own.weight.data = own.weight.data.bfloat16()
    ids = torch.tensor([[5, 9, 5]])
    got = StoredEmbedding(own, torch.float32)(ids)
    own.weight.data = own.weight.data.float()
    assert torch.equal(got, own(ids))
    got.zero_()
    assert own.weight.abs().sum() > 0, "a caller may change what it got"


def test_embeddings_of_the_same_dtype_stay():
    model = AutoModelForCausalLM.from_config(FAMILIES["llama"]())
    store_embeddings(model, torch.float32)
    assert not isinstance(model.get_input_embeddings(), StoredEmbedding)
    store_embeddings(model, torch.float64)
    assert isinstance(model.get_input_embeddings(), StoredEmbedding)
