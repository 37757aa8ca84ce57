from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minedraft.errors import ModelError
from minedraft.model_files.gguf_header import GgufHeader
from minedraft.model_files.gguf_names import check_architecture, rotary_order
from minedraft.model_files.json_file import JsonObject


def check(model_type, architecture):
    config = JsonObject(Path("config.json"), {"model_type": model_type})
    check_architecture(config, GgufHeader(Path("m.gguf"), architecture, {}))


@pytest.mark.parametrize(
    ("model_type", "architecture"), [("llama", "llama"), ("mistral", "llama"), ("qwen2", "qwen2")]
)
def test_a_file_of_the_same_architecture_is_served(model_type, architecture):
    check(model_type, architecture)


def test_another_architecture_is_refused_by_name():
    with pytest.raises(ModelError, match=r"general\.architecture is 'qwen2', want 'llama'"):
        check("llama", "qwen2")
    with pytest.raises(ModelError, match="model_type is 'falcon', want one of"):
        check("falcon", "falcon")


def test_the_two_halves_of_each_head_lie_apart_again():
    stored = ["a0", "a2", "a1", "a3", "b0", "b2", "b1", "b3"]  # neighbours are rotated together
    assert np.array(stored)[rotary_order(8, 2)].tolist() == [
        "a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"
    ]  # fmt: skip
