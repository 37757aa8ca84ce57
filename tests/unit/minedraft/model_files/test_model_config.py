"""config.json selects no code and no absurd sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject
from minedraft.model_files.model_config import check_config, num_layers, vocabulary_and_width

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 300,
    "eos_token_id": 2,
    "rope_parameters": {"rope_theta": 10000.0},
    "_attn_implementation": None,
    "_attn_implementation_autoset": True,
}


def check(**change):
    check_config(JsonObject(Path("config.json"), LLAMA | change))


def test_a_real_one_passes():
    check()
    check(text_config={"vocab_size": 3, "num_hidden_layers": 1024}, intermediate_size=[3, 4])


@pytest.mark.parametrize(
    "field",
    [
        "_attn_implementation",
        "attn_implementation",
        "_experts_implementation",
        "experts_implementation",
        "trust_remote_code",
        "transformers_weights",
        "use_kernels",
    ],
)
@pytest.mark.parametrize("at", ["", "text_config", "vision_config"])
def test_a_value_that_selects_code_is_refused_wherever_it_stands(field, at):
    change = {field: "kernels-community/evil"}
    where = f"{at}.{field}" if at else field
    with pytest.raises(ModelError, match=rf"config\.json: {where} is 'kernels.*want none"):
        check(**({at: change} if at else change))


@pytest.mark.parametrize("value", [{"AutoConfig": "x.Y"}, 3, ["x"], "x"])
def test_remote_code_is_refused(value):
    with pytest.raises(ModelError, match=r"auto_map is there.*remote code is never run"):
        check(auto_map=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": None}, "model_type is null, want the name of an architecture"),
        ({"model_type": 3}, "model_type is 3, want a string"),
        ({"text_config": "x"}, "text_config is 'x', want an object"),
        ({"hidden_size": 2**40}, f"hidden_size is {2**40}, want a whole number from 1 to 131072"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, want .* to 1024"),
        ({"vocab_size": "300"}, "vocab_size is '300', want a whole number"),
        ({"num_attention_heads": -4}, "num_attention_heads is -4, want a whole number"),
        ({"layer_types": 3}, "layer_types is 3, want a list"),
        ({"layer_types": ["full_attention", [1]]}, "layer_types is a list, want a list of kinds"),
        ({"head_dim": 0}, "head_dim is 0, want a whole number from 1 to 4096"),
        ({"num_experts": -1}, "num_experts is -1, want a whole number from 0 to 8192"),
        ({"head_dim": 16.0}, r"head_dim is 16\.0, want a whole number"),
        ({"intermediate_size": [64, 2**40]}, f"intermediate_size is {2**40}, want"),
        ({"text_config": {"hidden_size": 2**40}}, r"text_config\.hidden_size is"),
    ],
)
def test_another_shape_or_an_absurd_size_is_refused(change, message):
    with pytest.raises(ModelError, match=message):
        check(**change)


def test_sizes_are_found_under_either_name():
    def config(**values):
        return JsonObject(Path("config.json"), values)

    assert vocabulary_and_width(config(vocab_size=5, n_embd=7)) == (5, 7)
    assert vocabulary_and_width(config(text_config={"vocab_size": 5}, hidden_size=7)) == (5, 7)
    assert vocabulary_and_width(config()) == (None, None)
    assert num_layers(config(n_layer=3)) == num_layers(config(text_config={"n_layer": 3})) == 3
    assert num_layers(config()) == 0
