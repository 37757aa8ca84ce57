"""Added tokens of several files become one vocabulary, or a refusal by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.added_tokens import MAX_TOKEN_ID, AddedToken, Sources, merge
from minedraft.model_files.json_file import JsonObject

VOCAB = {"<s>": 0, "</s>": 1, "a": 2, "b": 3}
ADDED = [
    {"id": 0, "content": "<s>", "special": True},
    {"id": 1, "content": "</s>", "special": True},
    {"id": 4, "content": "<x>", "special": False},
]


def source(name, values):
    return None if values is None else JsonObject(Path(name), values)


def merged(*, vocab=VOCAB, added=ADDED, config=None, special=None, older=None):
    document = {"model": {"vocab": vocab}, "added_tokens": added}
    return merge(
        Sources(
            JsonObject(Path("tokenizer.json"), document),
            source("tokenizer_config.json", config),
            source("special_tokens_map.json", special),
            source("added_tokens.json", older),
        )
    )


def refused(**files) -> str:
    with pytest.raises(ModelError) as caught:
        merged(**files)
    return str(caught.value)


def decoder(**tokens):
    return {
        "added_tokens_decoder": {
            index: {"content": content, "special": True}
            for index, content in ((key.removeprefix("t"), text) for key, text in tokens.items())
        }
    }


def test_tokenizer_json_alone():
    found = merged()
    assert found.ids == {**VOCAB, "<x>": 4}
    assert {index: token.special for index, token in found.added.items()} == {0: 1, 1: 1, 4: 0}


def test_tokens_that_only_the_config_lists_are_there_by_id():
    found = merged(config=decoder(t6="<z>", t5="<y>", t0="<s>"))
    assert {"<y>": 5, "<z>": 6}.items() <= found.ids.items()
    assert [token.content for token in found.extra] == ["<s>", "<y>", "<z>"]


def test_tokens_that_only_added_tokens_json_lists_are_special_where_something_names_them():
    found = merged(older={"<z>": 6, "<y>": 5}, special={"pad_token": "<y>"})
    assert found.added[5] == AddedToken("<y>", special=True, normalized=False)
    assert found.added[6] == AddedToken("<z>", special=False, normalized=True)


def test_a_list_in_the_config_makes_the_older_files_void():
    found = merged(config=decoder(t5="<y>"), older={"<q>": 77}, special={"pad_token": "<never>"})
    assert "<q>" not in found.ids
    assert found.named == {}


def test_named_tokens_of_the_map_win_and_unlisted_ones_come_last():
    found = merged(
        config={"eos_token": "</s>", "image_token": "<img>", "additional_special_tokens": ["<q>"]},
        special={"eos_token": {"content": "<eot>", "lstrip": True}, "pad_token": "a"},
    )
    assert found.named == {"eos_token": "<eot>", "pad_token": "a", "image_token": "<img>"}
    assert found.ids["<eot>"] == 5
    assert found.added[5].lstrip
    assert found.added[2] == AddedToken("a", special=True, normalized=False)  # keeps its id
    assert (found.ids["<img>"], found.ids["<q>"]) == (6, 7)


def test_a_named_token_is_special_whatever_its_entry_says():
    assert merged(config={"eos_token": "<x>"}).added[4].special


def test_a_unigram_vocabulary_is_read_by_position():
    found = merged(vocab=[["<s>", 0], ["</s>", 0.0], ["a", -1.5], ["b", -2]])
    assert found.ids == {**VOCAB, "<x>": 4}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"config": decoder(t2="<y>")},
            (
                "tokenizer_config.json: added_tokens_decoder.2 is 2, want 5, the id that "
                "tokenizer.json gives '<y>', for 2 is 'a'"
            ),
        ),
        (
            {"config": decoder(t7="<y>")},
            (
                "tokenizer_config.json: added_tokens_decoder.7 is 7, want 5, the id that "
                "tokenizer.json gives '<y>'"
            ),
        ),
        (
            {"config": decoder(t3="<s>")},
            (
                "tokenizer_config.json: added_tokens_decoder.3 is 3, want 0, the id that "
                "tokenizer.json gives '<s>', for 3 is 'b'"
            ),
        ),
        (
            {"older": {"<y>": 4}},
            "added_tokens.json: <y> is 4, want another id: tokenizer.json gives it '<x>'",
        ),
        (
            {"older": {"<y>": 5, "<z>": 5}},
            "added_tokens.json: <z> is 5, want an id of its own: '<y>' has it",
        ),
        ({"older": {"<y>": "5"}}, "added_tokens.json: <y> is '5', want a token id"),
        (
            {"added": [{"id": 9, "content": "<x>"}]},
            (
                "tokenizer.json: added_tokens[0].id is 9, want 4, the id that tokenizer.json gives "
                "'<x>'"
            ),
        ),
        (
            {"added": [{"id": 2, "content": "<x>"}]},
            (
                "tokenizer.json: added_tokens[0].id is 2, want 4, the id that tokenizer.json gives "
                "'<x>', for 2 is 'a'"
            ),
        ),
        (
            {"vocab": {"a": 0, "b": 0}, "added": []},
            "tokenizer.json: model.vocab['a'] is 0, want an id of its own: it is that of 'b'",
        ),
        (
            {"vocab": {"a": 0, "b": 2}, "added": [{"id": 2, "content": "<x>"}]},
            "tokenizer.json: added_tokens[0].id is '<x>', want 'b': tokenizer.json gives it id 2",
        ),
        ({"vocab": {"a": -1}}, f"model.vocab['a'] is -1, want a token id from 0 to {MAX_TOKEN_ID}"),
        ({"vocab": {"a": "1"}}, "model.vocab['a'] is '1', want a token id"),
        ({"vocab": {"a": 2**40}}, f"model.vocab['a'] is {2**40}, want a token id"),
        ({"vocab": [["a", 1], "b"]}, "model.vocab[1] is 'b', want a token and its score"),
        ({"vocab": 3}, "tokenizer.json: model.vocab is 3, want a vocabulary"),
        ({"added": [{"content": "<x>"}]}, "added_tokens[0].id is null, want a token id"),
        ({"added": [{"id": 4}]}, "added_tokens[0].content is null, want a token"),
        ({"added": [{"id": 4, "content": ""}]}, "added_tokens[0].content is '', want a token"),
        (
            {"added": [{"id": 4, "content": "<x>", "special": "yes"}]},
            "added_tokens[0].special is 'yes', want true or false",
        ),
        ({"added": {"<x>": 4}}, "added_tokens is an object, want a list"),
        ({"config": {"eos_token": 3}}, "tokenizer_config.json: eos_token is 3, want a token"),
        ({"special": {"eos_token": ["x"]}}, "special_tokens_map.json: eos_token is a list, want"),
        (
            {"config": {"added_tokens_decoder": {"x": {"content": "<y>"}}}},
            "added_tokens_decoder is 'x', want a token id as a key",
        ),
        (
            {"config": {"added_tokens_decoder": {"9" * 5000: {"content": "<y>"}}}},
            "want a token id as a key",
        ),
        (
            {"config": {"added_tokens_decoder": {"5": None}}},
            "added_tokens_decoder.5 is null, want an added token",
        ),
        (
            {"config": {"extra_special_tokens": [3]}},
            "tokenizer_config.json: extra_special_tokens[0] is 3, want a token",
        ),
        (
            {"config": {"extra_special_tokens": "x"}},
            "tokenizer_config.json: extra_special_tokens is 'x', want a list of tokens",
        ),
    ],
)
def test_a_contradiction_or_another_shape_is_refused_by_name(files, message):
    assert message in refused(**files)


def test_a_named_token_that_would_take_a_taken_id_is_refused():
    message = refused(vocab={"a": 0, "b": 2}, added=[], config={"eos_token": "<e>"})
    assert message == (
        "tokenizer_config.json: eos_token is '<e>', want 'b': tokenizer.json gives it id 2"
    )
