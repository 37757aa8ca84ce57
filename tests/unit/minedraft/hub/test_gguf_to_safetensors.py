"""Conversion of GGUF files: the same model comes out, or an error."""

from __future__ import annotations

import json

import gguf
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from minedraft.errors import ModelError
from minedraft.hub.gguf_to_safetensors import convert
from tests.unit.minedraft.hub.tiny_gguf import tiny_vocabulary, write_gguf

SHAPE = {
    "vocab_size": len(tiny_vocabulary()[0]),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 50000.0, "rope_type": "default"},
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}


def make_model(kind: str, *, tied: bool = True) -> torch.nn.Module:
    torch.manual_seed(3)
    if kind == "llama":
        config = LlamaConfig(**SHAPE, head_dim=16, tie_word_embeddings=tied)
        model = LlamaForCausalLM(config)
    else:
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=tied))
    for name, value in model.state_dict().items():
        if value.dim() == 2:  # large enough that a wrong rotary order shows
            torch.nn.init.normal_(value, std=0.3)
        elif name.endswith("bias"):
            torch.nn.init.normal_(value)
    return model.bfloat16().float().eval()


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("kind", "tied", "pre"), [("llama", True, "smollm"), ("qwen2", False, "qwen2")]
)
def test_the_converted_model_computes_what_the_original_did(tmp_path, directory, kind, tied, pre):
    model = make_model(kind, tied=tied)
    write_gguf(tmp_path / "m.gguf", model, pre=pre)
    convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))
    loaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    ids = torch.tensor([[5, 17, 100, 42, 8, 8, 250, 1, 33]])
    with torch.no_grad():
        # down_proj went through Q8_0, everything else is exact: near, but not equal.
        expected, found = model(ids).logits, loaded(ids).logits
    assert torch.nn.functional.cosine_similarity(expected, found, dim=-1).min() > 0.999
    assert loaded.config.tie_word_embeddings is tied
    for name, value in model.state_dict().items():
        if "down_proj" not in name:
            assert torch.equal(loaded.state_dict()[name], value), name


def test_the_configuration_is_the_models_own(tmp_path, directory):
    write_gguf(tmp_path / "m.gguf", make_model("llama"))
    convert(tmp_path / "m.gguf", directory, eos_token_ids=(2, 0))
    config = json.loads((directory / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-6
    assert config["rope_parameters"]["rope_theta"] == 50000.0
    assert config["max_position_embeddings"] == 128
    assert config["vocab_size"] == SHAPE["vocab_size"]
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    generation = json.loads((directory / "generation_config.json").read_text())
    assert generation["eos_token_id"] == [2, 0]
    assert "temperature" not in generation


def test_progress_counts_tensors_to_the_end(tmp_path, directory):
    seen = []
    write_gguf(tmp_path / "m.gguf", make_model("llama"))
    convert(
        tmp_path / "m.gguf",
        directory,
        eos_token_ids=(2,),
        progress=lambda stage, done, total, unit: seen.append((stage, done, total, unit)),
    )
    tensors = [s for s in seen if s[0] == "convert m.gguf"]
    assert tensors[-1][1] == tensors[-1][2] == len(tensors) - 1
    assert [s[1] for s in tensors] == sorted(s[1] for s in tensors)


def test_an_architecture_that_was_not_checked_is_refused(tmp_path, directory):
    write_gguf(tmp_path / "m.gguf", make_model("llama"), architecture="gemma2")
    with pytest.raises(ModelError, match=r"m\.gguf.*'gemma2'"):
        convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))


def test_a_missing_tensor_is_refused_by_name(tmp_path, directory):
    write_gguf(tmp_path / "m.gguf", make_model("llama"), drop="blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match=r"no tensor for model\.layers\.1\.mlp\.up_proj\.weight"):
        convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))


def test_a_tensor_without_a_place_is_refused_by_name(tmp_path, directory):
    write_gguf(tmp_path / "m.gguf", make_model("llama"), add="rope_freqs.weight")
    with pytest.raises(ModelError, match=r"rope_freqs\.weight"):
        convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))


def test_an_eos_id_outside_the_vocabulary_is_refused(tmp_path, directory):
    write_gguf(tmp_path / "m.gguf", make_model("llama"))
    with pytest.raises(ModelError, match="9999"):
        convert(tmp_path / "m.gguf", directory, eos_token_ids=(9999,))


def test_a_file_that_is_no_gguf_is_refused(tmp_path, directory):
    (tmp_path / "m.gguf").write_bytes(b"not a model" * 100)
    with pytest.raises(ModelError, match="not a GGUF file"):
        convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))


def test_the_name_map_is_the_one_the_files_were_written_with():
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    assert names.get_name("model.layers.0.self_attn.q_proj") == "blk.0.attn_q"
