"""Eight families run as blocks and compute what they computed; what no block knows stays."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from structlog.testing import capture_logs
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention

from minedraft.model.batch import RowInput
from minedraft.model.blocks.block import Block
from minedraft.model.blocks.stored_embedding import StoredEmbedding
from minedraft.model.blocks.stored_linear import StoredLinear
from minedraft.model.blocks.stored_norm import StoredNorm
from minedraft.model.loader import load_runner
from tests.tiny_families import FAMILIES, own_logits, save_family
from tests.tiny_models import make_tiny_llama

IDS = [(7 * i * i + 3 * i) % 32 for i in range(40)]


def load(path, **options):
    return load_runner(path, num_blocks=10, block_size=4, **options)


def logits(runner):
    return runner.forward([RowInput(IDS, 0, range(10), len(IDS))])


def layers_of(runner):
    return list(runner._model.get_decoder().layers)


def narrowed(path):
    """The same checkpoint in bfloat16."""
    AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).save_pretrained(path)
    return path


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layer_of_a_known_family_is_a_block_that_computes_the_same(name, tmp_path):
    path = save_family(name, tmp_path)
    runner = load(path)
    assert all(isinstance(layer, Block) for layer in layers_of(runner))
    assert isinstance(runner._model.get_decoder().norm, StoredNorm)
    assert isinstance(runner._model.lm_head, StoredLinear)
    torch.testing.assert_close(logits(runner), own_logits(path, IDS), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_bf16_checkpoint_computes_in_fp32_what_its_widened_weights_do(name, tmp_path):
    path = narrowed(save_family(name, tmp_path))
    runner = load(path)
    assert isinstance(runner._model.get_input_embeddings(), StoredEmbedding)
    assert {p.dtype for p in runner._model.parameters()} == {torch.bfloat16}
    got = logits(runner)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, own_logits(path, IDS), rtol=1e-4, atol=1e-3)


def test_a_layer_whose_forward_changed_keeps_it(tmp_path, monkeypatch):
    path, real = save_family("llama", tmp_path), LlamaAttention.forward

    def clipped(self, hidden_states, **given):
        """Clips queries, keys and values, in one layer, as other families do."""
        if self.layer_idx == 1:
            hidden_states = hidden_states.clamp(-0.5, 0.5)
        return real(self, hidden_states, **given)

    monkeypatch.setattr(LlamaAttention, "forward", clipped)
    with capture_logs() as logs:
        runner = load(path)
    assert [isinstance(layer, Block) for layer in layers_of(runner)] == [True, False, True]
    assert isinstance(layers_of(runner)[1].mlp.down_proj, StoredLinear)
    torch.testing.assert_close(logits(runner), own_logits(path, IDS), rtol=1e-4, atol=1e-3)
    (kept,) = [line for line in logs if line["event"] == "model.layers_kept"]
    assert kept["layers"] == [1]
    assert "relative error" in kept["reason"]
    (counted,) = [line for line in logs if line["event"] == "model.layers"]
    assert counted["layers"] == "2 of 3 layers in blocks"
    assert runner.info.kernels.endswith(", 2 of 3 layers in blocks")


@pytest.mark.parametrize("bias", ["attention_bias", "mlp_bias"])
def test_biases_of_whole_products_are_computed_too(tmp_path, bias):
    config = FAMILIES["llama"]()
    setattr(config, bias, True)
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    model.save_pretrained(tmp_path)
    runner = load(tmp_path)
    assert all(isinstance(layer, Block) for layer in layers_of(runner))
    torch.testing.assert_close(logits(runner), own_logits(tmp_path, IDS), rtol=1e-4, atol=1e-3)


def test_layers_of_an_unknown_class_keep_their_forward_over_stored_linears(tmp_path):
    from transformers import OlmoConfig, OlmoForCausalLM

    OlmoForCausalLM(
        OlmoConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            clip_qkv=0.1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    ).save_pretrained(tmp_path)  # fmt: skip
    for path in (tmp_path, narrowed(tmp_path)):
        with capture_logs() as logs:
            runner = load(path)
        assert "0 of 2 layers in blocks" in [line.get("layers") for line in logs]
        assert isinstance(layers_of(runner)[0].self_attn.q_proj, StoredLinear)
        torch.testing.assert_close(logits(runner), own_logits(path, IDS), rtol=1e-4, atol=1e-3)


def test_stored_weights_go_with_their_runner(tmp_path):
    runner = load(save_family("qwen3_moe", tmp_path))
    logits(runner)
    stored = [m for m in runner._model.modules() if isinstance(m, StoredLinear)]
    left = [weakref.ref(module) for module in stored]
    assert len(left) == 3 * (2 + 1 + 2 * 4) + 1
    del stored, runner
    gc.collect()
    assert not any(reference() for reference in left)


def test_no_tensor_keeps_a_file_of_weights_mapped(tmp_path):
    runner = load(narrowed(save_family("qwen2", tmp_path)), kernels="torch")
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    assert logits(runner).isfinite().all()


def test_bf16_arithmetic_is_proven_in_fp32(tmp_path, monkeypatch):
    """One part in a thousand is below what bfloat16 could tell."""
    from transformers.models.llama.modeling_llama import LlamaMLP

    real = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: real(self, x) * 1.001)
    path = make_tiny_llama(tmp_path)
    runner = load(path, dtype="bfloat16")
    assert not any(isinstance(layer, Block) for layer in layers_of(runner))
