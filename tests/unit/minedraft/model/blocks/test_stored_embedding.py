from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from minedraft.model.blocks.stored_embedding import StoredEmbedding, store_embeddings
from minedraft.model.kernels import select
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


@pytest.mark.parametrize("name", ["llama", "gemma2_softcap"])
@torch.inference_mode()
def test_one_that_the_head_is_tied_to_reads_the_heads_rows_and_keeps_none(name):
    torch.manual_seed(0)
    own = AutoModelForCausalLM.from_config(FAMILIES[name]()).get_input_embeddings()
    ids = torch.tensor([[5, 9, 5]])
    wanted = own(ids)
    head = select("auto", torch.float32, 1).store(own.weight.detach())
    if not head.has_rows:
        pytest.skip("no C kernels here, and oneDNN reorders")
    tied = StoredEmbedding(own, torch.float32, head)
    assert torch.equal(tied(ids), wanted)
    assert sum(parameter.numel() for parameter in tied.parameters()) == 0


def test_embeddings_of_the_same_dtype_stay():
    model = AutoModelForCausalLM.from_config(FAMILIES["llama"]())
    store_embeddings(model, torch.float32)
    assert not isinstance(model.get_input_embeddings(), StoredEmbedding)
    store_embeddings(model, torch.float64)
    assert isinstance(model.get_input_embeddings(), StoredEmbedding)
