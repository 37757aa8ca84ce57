"""Six files, one truth: what ends a sequence, and what each id is."""

from __future__ import annotations

import json

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import MAX_TOKENIZER_BYTES
from minedraft.model_files.token_facts import read_token_facts
from minedraft.types import MAX_EOS_IDS
from tests.tiny_tokenizers import BOS, EOS, TURN, byte_level, write


def facts(tmp_path, files=(), **config):
    directory = write(byte_level(), tmp_path, **config)
    for name, document in dict(files).items():
        text = document if isinstance(document, str) else json.dumps(document)
        (directory / name).write_text(text, encoding="utf-8")
    return read_token_facts(directory)


def generation(eos):
    return {"generation_config.json": {"eos_token_id": eos}}


def config(eos, **more):
    return {"config.json": {"eos_token_id": eos, **more}}


@pytest.mark.parametrize(
    ("files", "settings", "expected"),
    [
        ({**generation([7, 8, 7]), **config(9)}, {}, (7, 8, 9, 1)),
        ({**generation(None), **config(9)}, {}, (9, 1)),
        (generation(0), {}, (0, 1)),
        (config(1, text_config={"eos_token_id": [4]}), {}, (1, 4)),
        (config(None), {}, (1,)),
        (config([]), {}, (1,)),
        ({}, {}, (1,)),
        ({}, {"eos_token": {"content": TURN}}, (2,)),
        ({"special_tokens_map.json": {"eos_token": TURN}}, {}, (2,)),
        ({}, {"eos_token": None}, ()),
    ],
)
def test_eos_is_the_union_over_the_files(tmp_path, files, settings, expected):
    assert facts(tmp_path, files, **settings).eos_token_ids == expected


@pytest.mark.parametrize("value", ["x", -1, [1, "x"], True, 1.5, {}, 2**40])
@pytest.mark.parametrize("make", [generation, config])
def test_an_eos_that_is_no_id_is_refused(tmp_path, value, make):
    (name,) = make(value)
    with pytest.raises(ModelError, match=rf"{name}: eos_token_id is .*, want a token id"):
        facts(tmp_path, make(value))


@pytest.mark.parametrize("make", [generation, config])
def test_an_eos_beyond_the_vocabulary_is_refused(tmp_path, make):
    (name,) = make(376)
    with pytest.raises(
        ModelError, match=rf"{name}: eos_token_id is 376, want an id of a token of tokenizer\.json"
    ):
        facts(tmp_path, make(376))


def test_without_a_tokenizer_an_eos_is_held_against_the_models_vocabulary(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 9, "vocab_size": 9}')
    with pytest.raises(ModelError, match=r"config\.json: eos_token_id is 9, want an id below"):
        read_token_facts(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 8, "vocab_size": 9}')
    found = read_token_facts(tmp_path)
    assert (found.eos_token_ids, found.fingerprint, found.num_ids) == ((8,), "", 0)


def test_a_list_of_eos_over_the_limit_is_refused(tmp_path):
    with pytest.raises(ModelError, match=f"at most {MAX_EOS_IDS} token ids"):
        facts(tmp_path, generation([1] * (MAX_EOS_IDS + 1)))
    assert facts(tmp_path, generation([1] * MAX_EOS_IDS)).eos_token_ids == (1,)
    ids = list(range(MAX_EOS_IDS + 1))
    with pytest.raises(ModelError, match=r"config\.json: .*over all files"):
        facts(tmp_path, {**generation(ids[:200]), **config(ids[200:])})


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    ],
)
@pytest.mark.parametrize("content", ["{", "[1]", '{"a": NaN}'])
def test_a_broken_file_is_refused_by_name(tmp_path, name, content):
    with pytest.raises(ModelError, match=name):
        facts(tmp_path, {name: content})


def test_a_tokenizer_over_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(MAX_TOKENIZER_BYTES + 1)
    with pytest.raises(ModelError, match=f"at most {MAX_TOKENIZER_BYTES} bytes"):
        read_token_facts(tmp_path)


def test_tokens_that_another_file_names_change_the_fingerprint(tmp_path):
    plain = facts(tmp_path / "a")
    more = facts(tmp_path / "b", {"added_tokens.json": {"<new>": plain.num_ids}})
    assert more.num_ids == plain.num_ids + 1
    assert more.fingerprint != plain.fingerprint
    assert facts(tmp_path / "c", generation(9)).fingerprint == plain.fingerprint


def test_names_are_there_for_chat_templates(tmp_path):
    found = facts(tmp_path, tool_token=TURN, add_bos_token=True)
    assert found.named_tokens == {"bos_token": BOS, "eos_token": EOS, "tool_token": TURN}
