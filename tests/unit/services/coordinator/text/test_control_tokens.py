from __future__ import annotations

import time

import pytest
from tokenizers import AddedToken, Tokenizer, models

from minedraft.errors import ModelError
from minedraft.services.coordinator.text.control_tokens import ControlTokens
from tests.tiny_tokenizers import BOS, EOS, TURN, byte_level


def spelled(control: ControlTokens, text: str, *, parse_special_tokens: bool = True) -> list[str]:
    ids = control.renamed.encode(
        control.respell(text, parse_special_tokens=parse_special_tokens), add_special_tokens=False
    ).ids
    return [byte_level().id_to_token(index) or "?" for index in ids]


def test_the_renamed_tokenizer_knows_control_tokens_by_secret_names_only():
    one, two = ControlTokens(byte_level(), ""), ControlTokens(byte_level(), "")
    names = {control.respell(EOS, parse_special_tokens=True) for control in (one, two)}
    assert len(names) == 2  # drawn
    assert all(len(name) == 32 for name in names)
    assert EOS not in one.renamed.get_vocab()
    assert spelled(one, EOS) == [EOS]
    assert EOS not in spelled(one, EOS, parse_special_tokens=False)


def test_of_overlapping_tokens_the_leftmost_and_longest_is_meant():
    tokenizer = byte_level()
    tokenizer.add_special_tokens(["<<|", "<|turn|>>", "|"])
    control = ControlTokens(tokenizer, "")
    for text in (f"<{TURN}", f"{TURN}>", f"<{TURN}>", "<||<<|turn|>>>", f"a{BOS}b{TURN[:-1]}"):
        ids = control.renamed.encode(control.respell(text, parse_special_tokens=True)).ids
        assert ids == tokenizer.encode(text).ids


def test_a_token_that_must_stand_alone_is_none_inside_a_word():
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<mask>", single_word=True, special=True)])
    control = ControlTokens(tokenizer, "")
    for text in ("a <mask> b", "a<mask> b", "<mask>"):
        ids = control.renamed.encode(control.respell(text, parse_special_tokens=True)).ids
        assert ids == tokenizer.encode(text).ids


def test_words_and_spaces_that_are_added_tokens_are_no_control_tokens():
    tokenizer = byte_level()
    tokenizer.add_tokens(["user", "  ", "</think>", "<other>"])
    template = "  user {{ '</think>' }}"
    control = ControlTokens(tokenizer, template)
    for text in ("user", "  ", "<other>"):
        assert control.respell(text, parse_special_tokens=True) == text
    assert control.respell("</think>", parse_special_tokens=False) != "</think>"


def test_contents_are_hidden_from_strict_to_lenient():
    tokenizer = byte_level()
    tokenizer.add_tokens(["<x>"])
    ways = list(ControlTokens(tokenizer, "").hide([f"<a{EOS}<x>", "b"]))
    a, b = chr(0xF0000), chr(0xF0000)
    assert [way.contents for way in ways] == [
        [f"{a}a{b}/s>{a}x>", "b"],
        [f"{a}a{b}/s><x>", "b"],
        [f"<a{b}/s><x>", "b"],
    ]
    assert [way.is_last for way in ways] == [False, False, True]
    assert {way.contents[0].translate(way.back) for way in ways} == {f"<a{EOS}<x>"}
    assert not list(ControlTokens(tokenizer, "").hide(["harmless", ""]))


def test_a_tokenizer_without_control_tokens_is_left_as_it_is():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    control = ControlTokens(tokenizer, "")
    assert control.renamed is tokenizer
    assert control.respell("a", parse_special_tokens=True) == "a"
    assert not list(control.hide(["a<"]))


def test_a_tokenizer_whose_special_tokens_cannot_be_told_from_text_is_refused():
    tokenizer = byte_level()
    tokenizer.encode_special_tokens = True
    control = ControlTokens(tokenizer, "")  # that is no part of its file
    assert spelled(control, EOS) == [EOS]

    class Broken:
        def get_added_tokens_decoder(self):
            return tokenizer.get_added_tokens_decoder()

        def to_str(self):
            return '{"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}'

        def token_to_id(self, token):
            return 1

    with pytest.raises(ModelError, match="cannot be told from"):
        ControlTokens(Broken(), "")


@pytest.mark.parametrize("text", ["<" * 400_000, "<|" * 200_000, TURN[:-1] * 50_000, EOS * 100_000])
def test_tokens_are_looked_for_in_linear_time(text):
    tokenizer = byte_level()
    tokenizer.add_special_tokens([f"<|reserved_{index}|>" for index in range(1000)])
    control = ControlTokens(tokenizer, "")
    begin = time.process_time()
    control.respell(text, parse_special_tokens=True)
    list(control.hide([text]))
    assert time.process_time() - begin < 4  # measured: under 0.8 s
