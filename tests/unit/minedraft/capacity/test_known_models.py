from __future__ import annotations

import pytest

from minedraft.capacity.known_models import MODELS, model_of
from minedraft.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen3-0.6B", 0.596),
        ("Qwen3-1.7B", 1.72),
        ("Qwen3-4B", 4.02),
        ("Qwen3-8B", 8.2),
        ("Qwen3-14B", 14.8),
        ("Qwen3-32B", 32.8),
        ("Llama-3.2-1B", 1.24),
        ("Llama-3.1-8B", 8.03),
        ("Llama-3.3-70B-Instruct", 70.6),
        ("Qwen2.5-Coder-0.5B-Instruct", 0.494),
        ("Qwen2.5-Coder-1.5B-Instruct", 1.54),
    ],
)
def test_weights_sum_up_to_what_the_maker_states(name, billions):
    assert model_of(name).num_params / 1e9 == pytest.approx(billions, rel=0.005)


def test_every_model_of_the_table_is_held_against_its_size():
    tested = test_weights_sum_up_to_what_the_maker_states.pytestmark[0].args[1]
    assert {name for name, _ in tested} == set(MODELS)


@pytest.mark.parametrize(
    ("text", "family", "name"),
    [
        ("qwen3-32b", "", "Qwen3-32B"),
        ("Qwen/Qwen3-32B", "", "Qwen3-32B"),
        ("0.6B", "Qwen3-32B", "Qwen3-0.6B"),
        ("0.5B", "Qwen2.5-Coder-1.5B-Instruct", "Qwen2.5-Coder-0.5B-Instruct"),
        ("Llama-3.3-70B", "", "Llama-3.3-70B-Instruct"),
    ],
)
def test_names_are_found_in_their_usual_forms(text, family, name):
    assert model_of(text, family).name == name


def test_weights_may_be_stored_in_fewer_bits():
    full, packed = model_of("Qwen3-32B"), model_of("Qwen3-32B:int4")
    assert packed.layer_bytes / full.layer_bytes == pytest.approx(0.265)
    with pytest.raises(ConfigError, match="'int3' is no way to store weights"):
        model_of("Qwen3-32B:int3")


def test_an_unknown_model_says_what_is_known_and_how_to_give_one():
    with pytest.raises(ConfigError, match=r"'Qwen9-1T': not known.* Qwen3-32B,.*config\.json"):
        model_of("Qwen9-1T")
