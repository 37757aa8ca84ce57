from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM

from minedraft.model.attention import AttentionOptions
from minedraft.model.blocks.build import BlockBuilder
from minedraft.model.blocks.family import family_of
from minedraft.model.kernels.torch_maker import TorchKernels
from minedraft.model.kv_pool import LayerGeometry
from tests.tiny_families import FAMILIES


@torch.inference_mode()
def test_experts_add_what_the_layers_own_do_and_a_token_without_mates_too():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES["qwen3_moe"]()).eval()
    layer = model.get_decoder().layers[0]
    for parameter in layer.parameters():
        parameter.normal_(0, 0.3)
    builder = BlockBuilder(family_of(layer), TorchKernels(torch.float32))
    feed = builder.build(layer, 0, LayerGeometry(2, 16, 16), AttentionOptions(0.25))._feed
    x = torch.randn(9, 64)
    wanted = layer.mlp(x[None])[0]
    torch.testing.assert_close(feed(x), wanted, rtol=1e-4, atol=1e-4)
    for row in range(9):
        torch.testing.assert_close(feed(x[row : row + 1])[0], wanted[row], rtol=1e-4, atol=1e-4)
    residual = torch.ones(9, 64)
    feed.add(x, residual)
    torch.testing.assert_close(residual, wanted + 1, rtol=1e-4, atol=1e-4)
