"""Tokenizers out of GGUF files: split as in training, or refused."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from minedraft.errors import ModelError
from minedraft.hub.gguf_to_safetensors import convert
from tests.unit.minedraft.hub.test_gguf_to_safetensors import make_model
from tests.unit.minedraft.hub.tiny_gguf import (
    CHAT_TEMPLATE,
    NUM_PADDING_ROWS,
    tiny_vocabulary,
    write_gguf,
)


def converted(tmp_path, **settings):
    directory = tmp_path / "out"
    directory.mkdir()
    write_gguf(tmp_path / "m.gguf", make_model("llama"), **settings)
    convert(tmp_path / "m.gguf", directory, eos_token_ids=(2,))
    return directory


def test_smollm_splits_digits_off_before_white_space_is_grouped(tmp_path):
    tokenizer = Tokenizer.from_file(str(converted(tmp_path) / "tokenizer.json"))
    # GPT-2's own splitting would leave the second newline to the digit: "\n", "\n", "1".
    assert tokenizer.encode("fox\n\n1").tokens[-2:] == ["ĊĊ", "1"]
    assert tokenizer.encode("22").tokens == ["2", "2"]


def test_qwen2_composes_characters(tmp_path):
    tokenizer = Tokenizer.from_file(str(converted(tmp_path, pre="qwen2") / "tokenizer.json"))
    assert tokenizer.encode("cafe\u0301").ids == tokenizer.encode("café").ids


def test_text_comes_back_as_it_went_in_and_no_bos_is_added(tmp_path):
    directory = converted(tmp_path)
    for tokenizer in (
        AutoTokenizer.from_pretrained(directory),
        Tokenizer.from_file(str(directory / "tokenizer.json")),
    ):
        text = "the fox  don't\n\n1 22\tcafé 😀"
        encoded = tokenizer.encode(text)
        ids = encoded if isinstance(encoded, list) else encoded.ids
        assert 1 not in ids
        assert tokenizer.decode(ids) == text


def test_special_tokens_stay_whole(tmp_path):
    tokenizer = Tokenizer.from_file(str(converted(tmp_path) / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>x<|im_end|>").ids[0] == 1
    assert tokenizer.encode("<|im_start|>x<|im_end|>").ids[-1] == 2


def test_padding_rows_leave_the_vocabulary(tmp_path):
    directory = converted(tmp_path)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == len(tiny_vocabulary()[0]) - NUM_PADDING_ROWS
    assert not [token for token in tokenizer.get_vocab() if token.startswith("[PAD")]


def test_the_chat_template_is_in_the_tokenizer_configuration(tmp_path):
    directory = converted(tmp_path)
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == CHAT_TEMPLATE
    assert settings["eos_token"] == "<|im_end|>"
    assert settings["model_max_length"] == 128
    assert not (directory / "chat_template.jinja").exists()


def test_an_unknown_pre_tokenizer_is_refused_by_name(tmp_path):
    with pytest.raises(ModelError, match="gpt2/tekken"):
        converted(tmp_path, pre="tekken")


def test_a_file_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no chat template"):
        converted(tmp_path, chat_template=None)
