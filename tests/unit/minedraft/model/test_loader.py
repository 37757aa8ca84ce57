"""What is refused at load, and what a loaded runner says of itself."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from minedraft.errors import ModelError
from minedraft.model import attention, loader
from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner
from tests.tiny_families import own_logits, save_family
from tests.tiny_models import make_tiny_llama


@pytest.fixture
def llama(tmp_path):
    return make_tiny_llama(tmp_path / "llama")


def edit(directory, **fields):
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def test_info_tells_what_the_directory_says(llama):
    info = load_runner(llama, num_blocks=9, block_size=8).info
    assert (info.name, info.vocab_size, info.max_model_len) == ("llama", 300, 512)
    assert (info.dtype, info.block_size, info.num_blocks) == ("float32", 8, 9)
    assert info.eos_token_ids == (2,)
    assert len(info.tokenizer_fingerprint) == 64


def test_eos_is_what_any_file_names(llama):
    (llama / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    assert load_runner(llama, num_blocks=1).info.eos_token_ids == (5, 7, 2)


def test_without_a_tokenizer_the_fingerprint_is_empty(tmp_path):
    path = make_tiny_llama(tmp_path, tokenizer_size=0)
    assert load_runner(path, num_blocks=1).info.tokenizer_fingerprint == ""


def test_bf16_runs_and_is_near_fp32(llama):
    ids = [5, 9, 40, 3, 77]
    runner = load_runner(llama, dtype="bfloat16", num_blocks=2)
    got = runner.forward([RowInput(ids, 0, [1], 5)])
    assert got.dtype == torch.bfloat16
    want = own_logits(llama, ids)
    assert (got.float() - want).norm() / want.norm() < 0.05


def test_the_logits_are_the_models_own_but_for_rounding(llama):
    ids = list(range(20, 60))
    got = load_runner(llama, num_blocks=4).forward([RowInput(ids, 0, [3, 0, 2], 40)])
    torch.testing.assert_close(got, own_logits(llama, ids), rtol=1e-4, atol=1e-3)


def test_kernels_that_compute_something_else_are_refused(llama, monkeypatch):
    real = loader.put_on_kernels

    def spoil(model, *given, **options):
        with torch.no_grad():
            model.model.layers[0].self_attn.v_proj.weight.mul_(2)
        return real(model, *given, **options)

    monkeypatch.setattr(loader, "put_on_kernels", spoil)
    with pytest.raises(ModelError, match="differs from the model's own"):
        load_runner(llama, num_blocks=1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("field", ["sliding_window", "softcap", "scaling"])
def test_an_attention_that_ignores_an_option_is_refused(tmp_path, monkeypatch, dtype, field):
    path = save_family("gemma2_softcap", tmp_path)
    real = attention.AttentionOptions

    def forgetful(**given):
        return real(**(given | {field: 0.7 if field == "scaling" else None}))

    monkeypatch.setattr(attention, "AttentionOptions", forgetful)
    with pytest.raises(ModelError, match="differs from the model's own"):
        load_runner(path, dtype=dtype, num_blocks=1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, "auto_map.*remote code"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quant_method is 'hqq', want one of"),
        ({"model_type": "no_such_model"}, r"config\.json: model_type is 'no_such_model', want an"),
        ({"model_type": "vit"}, r"config\.json: model_type is 'vit', want a causal"),
        ({"text_config": {"a": 1}}, r"config\.json: text_config is an object, want settings"),
        ({"rope_parameters": [1]}, "rope"),
        ({"layer_types": [[1], 2]}, "layer_type"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0, want"),
        ({"eos_token_id": "two"}, "eos_token_id is 'two'"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder=True"),
        ({"num_kv_shared_layers": 1}, "num_kv_shared_layers=1"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
        ({"hidden_size": 32}, "mismatched_keys|size mismatch|mismatch"),
        ({"num_hidden_layers": 3}, "missing_keys"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(llama, fields, said):
    edit(llama, **fields)
    with pytest.raises(ModelError, match=said) as caught:
        load_runner(llama, num_blocks=1)
    assert str(llama) in str(caught.value)


def test_weights_that_are_missing_are_not_made_up(llama):
    weights = load_file(llama / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, llama / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="missing_keys"):
        load_runner(llama, num_blocks=1)


def test_a_broken_weight_file_is_refused(llama):
    (llama / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match=str(llama)):
        load_runner(llama, num_blocks=1)


def test_attention_sinks_are_refused_by_name(tmp_path):
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_local_experts=2,
        num_experts_per_tok=1, max_position_embeddings=128, sliding_window=16,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    GptOssForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="s_aux"):
        load_runner(tmp_path, num_blocks=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"num_blocks": 0}, "num_blocks=0"),
        ({"block_size": 0}, "block_size=0"),
        ({"device": "abacus"}, "device='abacus'"),
    ],
)
def test_an_option_out_of_range_is_refused(llama, options, said):
    with pytest.raises(ModelError, match=said):
        load_runner(llama, **({"num_blocks": 1} | options))


def test_a_rope_that_looks_at_batch_mates_is_capped_at_its_original_length(llama):
    edit(
        llama,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0,
                         "original_max_position_embeddings": 100},
    )  # fmt: skip
    assert load_runner(llama, num_blocks=1).info.max_model_len == 100


def test_the_model_runs_from_a_copy_without_the_original(llama, tmp_path):
    runner = load_runner(llama, num_blocks=1)
    before = runner.forward([RowInput([5], 0, [0], 1)]).clone()
    shutil.rmtree(llama)
    assert torch.equal(runner.forward([RowInput([5], 0, [0], 1)]), before)
