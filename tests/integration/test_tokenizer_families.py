"""Tokenizers of ten families: the ids, the added tokens, the EOS and the text of transformers."""

from __future__ import annotations

import json

import pytest
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from minedraft.model_files.text_pipeline import GENERIC_ARCHITECTURES
from minedraft.model_files.token_facts import read_token_facts
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from tests.tokenizer_families import (
    FAMILIES,
    LLAMA3_SPLIT,
    byte_level_family,
    sentencepiece_family,
    with_beginning,
    write_family,
)

TEXTS = [
    "Hello world, hello there: the quick brown fox",
    " leading, trailing \n\n and  two  spaces ",
    "naïve café 你好 世界 😀 e\u0301",
    "",
]


@pytest.fixture(scope="module", params=FAMILIES)
def directory(request, tmp_path_factory):
    return write_family(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def theirs(directory):
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def ours(directory):
    return Tokenizer.from_directory(directory)


@pytest.fixture
def texts(theirs):
    """With every added token amid a text, alone, and beside others."""
    added = [token.content for token in theirs.added_tokens_decoder.values()]
    return [*TEXTS, *(f"Hello{token} the fox" for token in added), "".join(added), *added]


def test_ids_are_those_of_transformers(ours, theirs, texts):
    for text in texts:
        assert ours.encode(text, parse_special_tokens=True) == theirs.encode(text), text


def test_vocabulary_and_added_tokens_are_those_of_transformers(ours, theirs, directory):
    facts = read_token_facts(directory)
    assert facts.num_ids == ours.vocab_size == max(theirs.get_vocab().values()) + 1
    assert facts.added_ids == {
        token.content: index for index, token in theirs.added_tokens_decoder.items()
    }
    assert ours.special_ids == {
        index for index, token in theirs.added_tokens_decoder.items() if token.special
    }
    named = {name: str(token) for name, token in theirs.special_tokens_map.items()
             if isinstance(token, str)}  # fmt: skip
    # Classes of transformers have names of their own on top, by default.
    assert facts.named_tokens is not None
    assert facts.named_tokens.items() <= named.items()


def test_eos_is_the_union_of_what_transformers_and_the_configs_say(theirs, directory):
    expected = {theirs.eos_token_id} - {None}
    for name in ("generation_config.json", "config.json"):
        if (directory / name).exists():
            document = json.loads((directory / name).read_text())
            for part in (document, document.get("text_config") or {}):
                found = part.get("eos_token_id")
                expected.update(found if isinstance(found, list) else [found])
    assert set(read_token_facts(directory).eos_token_ids) == expected - {None}


@pytest.mark.parametrize("skip", [True, False])
def test_text_is_that_of_transformers(ours, theirs, texts, skip):
    for text in texts:
        ids = theirs.encode(text)
        assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text
    for index in range(ours.vocab_size):
        assert ours.decode([index], skip) == theirs.decode([index], skip_special_tokens=skip)


def same_as_transformers(directory, tokenizer, architecture, **settings):
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", **settings}
    given = {name: value for name, value in settings.items() if value is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(given))
    (directory / "config.json").write_text(json.dumps({"model_type": architecture}))
    theirs, ours = AutoTokenizer.from_pretrained(directory), Tokenizer.from_directory(directory)
    for text in ("Hello world", " Hello", "<s>Hello</s> x", "a</s>b", " a  b ", ""):
        ids = theirs.encode(text)
        assert ours.encode(text, parse_special_tokens=True) == ids, text
        assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids), text
    return theirs


@pytest.mark.parametrize("prefix", ["normalizer", "metaspace", ""])
@pytest.mark.parametrize("legacy", [None, True, False])
@pytest.mark.parametrize("add_prefix_space", [None, True, False])
@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_the_spaces_of_llamas_class_are_those_of_transformers(
    tmp_path, prefix, legacy, add_prefix_space, architecture
):
    tokenizer = with_beginning(sentencepiece_family(["<unk>", "<s>", "</s>"], prefix=prefix), "<s>")
    theirs = same_as_transformers(
        tmp_path, tokenizer, architecture, tokenizer_class="LlamaTokenizer", legacy=legacy,
        add_prefix_space=add_prefix_space,
    )  # fmt: skip
    assert (type(theirs).__name__ == "LlamaTokenizer") is (architecture == "llama")


@pytest.mark.parametrize("add_prefix_space", [None, True, False])
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("GPT2Tokenizer", "gpt2"),
        ("GPTNeoXTokenizerFast", "gpt_neox"),
        ("Qwen2Tokenizer", "qwen2"),
        ("PreTrainedTokenizerFast", "qwen2"),
        ("PreTrainedTokenizerFast", "gpt2"),
        ("LlamaTokenizerFast", "llama"),
    ],
)
def test_the_spaces_of_byte_level_classes_are_those_of_transformers(
    tmp_path, name, architecture, add_prefix_space
):
    tokenizer = byte_level_family(
        ["<unk>", "<s>", "</s>"], split=None if "gpt" in architecture else LLAMA3_SPLIT
    )
    same_as_transformers(
        tmp_path, tokenizer, architecture, tokenizer_class=name, add_prefix_space=add_prefix_space
    )


def test_architectures_that_take_tokenizer_json_as_it_is_are_those_of_transformers():
    generic = {"TokenizersBackend", "MistralCommonBackend", "PreTrainedTokenizerFast"}
    assert {TOKENIZER_MAPPING_NAMES[name] for name in GENERIC_ARCHITECTURES} <= generic
