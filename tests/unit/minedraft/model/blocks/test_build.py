"""What keeps a layer from becoming a block."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.activations import ACT2FN

from minedraft.model.attention import AttentionOptions
from minedraft.model.blocks.build import BlockBuilder, UnknownPartError
from minedraft.model.blocks.family import FAMILIES as TABLES
from minedraft.model.blocks.family import family_of
from minedraft.model.blocks.feed import ExpertsFeed, GatedFeed, OwnFeed
from minedraft.model.kernels.torch_maker import TorchKernels
from minedraft.model.kv_pool import LayerGeometry
from tests.tiny_families import FAMILIES

GEOMETRY = LayerGeometry(2, 16, 16)


def layer_of(name):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(FAMILIES[name]()).get_decoder().layers[0]


def build(layer):
    builder = BlockBuilder(family_of(layer), TorchKernels(torch.float32))
    return builder.build(layer, 0, GEOMETRY, AttentionOptions(0.25))


def bias_on_k(layer):
    layer.self_attn.k_proj.bias = nn.Parameter(torch.ones(32))


def another_norm(layer):
    layer.self_attn.v_norm = nn.LayerNorm(16)


def sinks(layer):
    layer.self_attn.sinks = nn.Parameter(torch.ones(4))


def hook(layer):
    layer.self_attn.o_proj.register_forward_hook(lambda *_: None)


def own_forward(layer):
    layer.forward = layer.forward


def other_linear(layer):
    class Scaled(nn.Linear):
        """Computes something else."""

    layer.self_attn.q_proj = Scaled(64, 64, bias=False)


def norm_with_bias(layer):
    layer.input_layernorm.bias = nn.Parameter(torch.ones(64))


@pytest.mark.parametrize(
    "change", [bias_on_k, another_norm, sinks, hook, own_forward, other_linear, norm_with_bias]
)
def test_a_layer_with_something_unknown_is_no_block(change):
    layer = layer_of("llama")
    build(layer)
    change(layer)
    with pytest.raises(UnknownPartError):
        build(layer)


def unknown_activation(layer):
    layer.mlp.act_fn = ACT2FN["relu"]


def hook_on_the_mlp(layer):
    layer.mlp.register_forward_hook(lambda *_: None)


@pytest.mark.parametrize("change", [unknown_activation, hook_on_the_mlp])
def test_an_unknown_mlp_is_taken_as_it_is(change):
    layer = layer_of("llama")
    assert isinstance(build(layer)._feed, GatedFeed)
    change(layer)
    assert isinstance(build(layer)._feed, OwnFeed)


def test_experts_are_stored_one_by_one():
    feed = build(layer_of("qwen3_moe"))._feed
    assert isinstance(feed, ExpertsFeed)
    assert len(feed._pairs) == 4


def test_heads_that_do_not_fill_the_product_are_refused():
    layer = layer_of("llama")
    builder = BlockBuilder(family_of(layer), TorchKernels(torch.float32))
    with pytest.raises(UnknownPartError, match="queries, keys and values"):
        builder.build(layer, 0, LayerGeometry(4, 16, 16), AttentionOptions(0.25))


def test_a_class_of_the_same_name_elsewhere_has_no_family():
    class LlamaDecoderLayer(nn.Module):
        """Not transformers'."""

    assert family_of(LlamaDecoderLayer()) is None
    assert family_of(layer_of("llama")) is TABLES["llama.modeling_llama.LlamaDecoderLayer"]
