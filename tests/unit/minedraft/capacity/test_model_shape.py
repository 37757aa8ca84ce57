from __future__ import annotations

import json

import pytest

from minedraft.capacity.known_models import model_of
from minedraft.capacity.model_shape import shape_of_config
from minedraft.errors import ModelError

QWEN3_32B = {
    "model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600,
    "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": False, "max_position_embeddings": 40960,
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    directory = tmp_path / "Qwen3-32B"
    directory.mkdir()

    def write(**changes):
        found = {key: value for key, value in {**QWEN3_32B, **changes}.items() if value != "gone"}
        (directory / "config.json").write_text(json.dumps(found))
        return directory

    return write


def test_a_config_gives_the_shape_of_the_table(config):
    assert shape_of_config(config()) == model_of("Qwen3-32B")
    assert shape_of_config(config() / "config.json") == model_of("Qwen3-32B")


def test_a_token_of_keys_and_values_has_its_bytes():
    assert model_of("Qwen3-32B").kv_bytes == 64 * 8 * 128 * 2 * 2


def test_heads_may_be_left_out(config):
    shape = shape_of_config(config(head_dim="gone", num_key_value_heads="gone"))
    assert (shape.head_dim, shape.num_kv_heads) == (80, 64)


def test_a_part_for_text_counts(config):
    text = {key: value for key, value in QWEN3_32B.items() if key != "model_type"}
    found = shape_of_config(config(text_config=text, hidden_size="gone"))
    assert found.hidden == 5120


@pytest.mark.parametrize(
    ("quantised", "weights"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 8}, "fp8"),
    ],
)
def test_quantised_layers_take_fewer_bytes(config, quantised, weights):
    shape = shape_of_config(config(quantization_config=quantised))
    assert shape.weights == weights
    assert shape.layer_bytes < shape_of_config(config()).layer_bytes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hidden_size": "gone"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"intermediate_size": -1}, "intermediate_size"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_experts": 128}, "num_experts"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ],
)
def test_what_is_missing_wrong_or_priced_otherwise_is_named(config, changes, field):
    with pytest.raises(ModelError, match=field):
        shape_of_config(config(**changes))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json: no such file"):
        shape_of_config(tmp_path)
