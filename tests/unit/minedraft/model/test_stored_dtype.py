from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

from minedraft.model.stored_dtype import restore_buffers, stored_dtype
from tests.tiny_families import FAMILIES

B, F, H, I = torch.bfloat16, torch.float32, torch.float16, torch.int64  # noqa: E741


@pytest.mark.parametrize(
    ("kinds", "served", "stored"),
    [
        ([B, B], F, B),
        ([B, I], F, B),
        ([F, F], F, F),
        ([B, F], F, F),
        ([H, H], F, F),
        ([B, H], F, F),
        ([F, F], B, B),
        ([B, B], B, B),
    ],
)
def test_only_whole_bf16_checkpoints_stay_narrower_than_the_arithmetic(
    tmp_path, kinds, served, stored
):
    for index, kind in enumerate(kinds):
        save_file({"w": torch.zeros(2).to(kind)}, tmp_path / f"{index}.safetensors")
    assert stored_dtype(tmp_path, served) == stored


def test_gemmas_factor_is_what_it_is_in_fp32():
    config = FAMILIES["gemma3_window"]()
    config.hidden_size = 3072
    config.num_hidden_layers = 1
    config.layer_types = ["full_attention"]
    with torch.device("meta"):
        wide = AutoModelForCausalLM.from_config(config)
    embedding = wide.get_input_embeddings()
    embedding.embed_scale = torch.tensor(embedding.scalar_embed_scale, dtype=B)
    assert restore_buffers(embedding, F)
    assert embedding.embed_scale.item() == pytest.approx(3072**0.5, rel=1e-7)


def test_another_rounded_buffer_is_told():
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.zeros(2, dtype=B))
    assert not restore_buffers(module, F)
    module.table = module.table.float()
    assert restore_buffers(module, F)
