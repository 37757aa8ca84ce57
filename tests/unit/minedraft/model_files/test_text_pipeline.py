"""Settings of a tokenizer class decide over tokenizer.json where transformers lets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject
from minedraft.model_files.text_pipeline import replaced_parts

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False}
NESTED = {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, BYTE_LEVEL]}


def replaced(before=BYTE_LEVEL, architecture=None, **settings):
    return replaced_parts(
        JsonObject(Path("tokenizer.json"), {"pre_tokenizer": before}),
        JsonObject(Path("tokenizer_config.json"), settings),
        JsonObject(Path("config.json"), {"model_type": architecture}),
    )


def test_without_settings_tokenizer_json_stands():
    assert replaced_parts(JsonObject(Path("tokenizer.json"), {}), None, None) == {}
    assert replaced(add_prefix_space=True) == {}
    assert replaced(add_prefix_space=True, tokenizer_class="PreTrainedTokenizerFast") == {}


def test_a_prefix_space_is_set_wherever_the_byte_level_stands():
    found = replaced(NESTED, tokenizer_class="GPT2TokenizerFast", add_prefix_space=True)
    assert found["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] is True
    assert NESTED["pretokenizers"][1] == {"type": "ByteLevel", "add_prefix_space": False}
    assert replaced(NESTED, tokenizer_class="GPT2Tokenizer", add_prefix_space=False) == {}


@pytest.mark.parametrize(
    ("prefix", "legacy", "scheme"),
    [(None, None, "first"), (True, True, "always"), (False, True, "never")],
)
def test_llamas_class_writes_its_own_spaces(prefix, legacy, scheme):
    found = replaced(
        None, "llama", tokenizer_class="LlamaTokenizer", add_prefix_space=prefix, legacy=legacy
    )
    assert found["pre_tokenizer"]["prepend_scheme"] == scheme
    assert found["normalizer"] is None


def test_llamas_class_stands_back_for_bytes_and_for_other_architectures():
    assert replaced(NESTED, "llama", tokenizer_class="LlamaTokenizer") == {}
    assert replaced(None, "mistral", tokenizer_class="LlamaTokenizer") == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer_class": 3}, "tokenizer_class is 3, want a string"),
        (
            {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": "yes"},
            "add_prefix_space is 'yes', want true or false",
        ),
        ({"tokenizer_class": "LlamaTokenizer", "before": {"type": "Sequence",
          "pretokenizers": 3}}, "pre_tokenizer.pretokenizers is 3, want a list"),
    ],
)  # fmt: skip
def test_another_shape_is_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        replaced(**settings)
