"""Tokens as bytes: what decoders mean, and which of them have no such meaning."""

from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from minedraft.services.coordinator.text.token_pieces import Pieces, read_pieces

REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SPACES = (("▁", " "),)


def sequence(*stages):
    return {"type": "Sequence", "decoders": list(stages)}


@pytest.mark.parametrize(
    ("decoder", "pieces"),
    [
        ({"type": "ByteLevel"}, Pieces(byte_level=True)),
        (sequence({"type": "ByteLevel"}), Pieces(byte_level=True)),
        (
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            Pieces(replacements=SPACES, drop_first="▁"),
        ),
        (
            {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"},
            Pieces(replacements=(("_", " "),)),
        ),
        (
            sequence(REPLACE, FALLBACK, FUSE, STRIP),
            Pieces(replacements=SPACES, byte_fallback=True, strip_left=(" ", 1)),
        ),
        (sequence(REPLACE, FALLBACK, FUSE), Pieces(replacements=SPACES, byte_fallback=True)),
        (REPLACE, Pieces(replacements=SPACES)),
    ],
)
def test_decoders_that_work_token_by_token_are_read(decoder, pieces):
    assert read_pieces(decoder) == pieces


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "CTC"},
        sequence(),
        sequence(FUSE, FALLBACK),
        sequence(FALLBACK, FALLBACK),
        sequence(REPLACE, STRIP),  # strips every token
        sequence(REPLACE, FUSE, {**STRIP, "stop": 1}),  # strips an end nobody knows yet
        sequence({**REPLACE, "pattern": {"Regex": "▁+"}}),
        sequence({"type": "ByteLevel"}, FUSE),
    ],
)
def test_other_decoders_have_no_pieces(decoder):
    assert read_pieces(decoder) is None


def test_the_byte_alphabet_is_the_librarys():
    pieces = Pieces(byte_level=True)
    stand_ins = pre_tokenizers.ByteLevel.alphabet()
    assert {pieces.bytes_of(char) for char in stand_ins} == {bytes([b]) for b in range(256)}
    text = "naïve 你好 \n\t😀\x00\x7f\u00ad"
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    [(token, _)] = split.pre_tokenize_str(text)
    assert pieces.bytes_of(token) == text.encode()


@pytest.mark.parametrize(
    ("token", "data"),
    [
        ("▁Hello", b" Hello"),
        ("<0xE4>", b"\xe4"),
        ("<0xe4>", b"\xe4"),
        ("<0xG4>", b"<0xG4>"),
        ("<0xE45>", b"<0xE45>"),
        ("你", "你".encode()),
        ("a▁b", b"a b"),
    ],
)
def test_sentencepiece_tokens(token, data):
    assert Pieces(replacements=SPACES, byte_fallback=True).bytes_of(token) == data


def test_an_added_token_in_a_byte_level_vocabulary_is_plain_text():
    assert Pieces(byte_level=True).bytes_of("ünder scored") == "ünder scored".encode()


def test_metaspace_drops_the_dummy_space_of_the_first_token_only():
    pieces = Pieces(replacements=SPACES, drop_first="▁")
    assert pieces.bytes_of("▁a", is_first=True) == b"a"
    assert pieces.bytes_of("▁a") == b" a"
