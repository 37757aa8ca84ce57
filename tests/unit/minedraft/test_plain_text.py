"""minedraft/plain_text.py."""

from __future__ import annotations

import json
import sys
import unicodedata
from xml.etree import ElementTree as ET

import pytest

from minedraft.plain_text import LINES, plain, plain_json, plain_xml

HARMLESS = set("\u00ad\u061c\u200b\u200c\u200d\u200e\u200f")
"""Invisible, and part of how scripts and emoji are written."""
EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))


STEERS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def is_visible_format(char):
    name = unicodedata.name(char, "")
    return any(word in name for word in ("ARABIC", "SYRIAC", "KAITHI", "HIEROGLYPH", "SHORTHAND",
                                         "MUSICAL"))  # fmt: skip


def test_no_control_format_separator_or_surrogate_is_left():
    left = {c for c in plain(EVERYTHING) if unicodedata.category(c) in STEERS}
    assert not {c for c in left - HARMLESS if not is_visible_format(c)}
    assert left >= HARMLESS


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcödé, 你好, 👩‍👩‍👧", "plain, ünïcödé, 你好, 👩‍👩‍👧"),
        ("\x1b]0;pwned\x07\x1b[2J", r"\x1b]0;pwned\x07\x1b[2J"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("gpj.\u202eexe\u2066\u2028", r"gpj.\u202eexe\u2066\u2028"),
        ("\ud800\udc00", r"\ud800\udc00"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_is_shown_as_its_escape(text, shown):
    assert plain(text) == shown


def test_a_text_may_have_lines():
    assert plain("a\n\tb\r\x1b", keep=LINES) == "a\n\tb\\r\\x1b"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_document_is_the_same_value_in_plain_text(ascii_only):
    value = {"text": EVERYTHING, "more": ["\n", {"a\x1b": 1}]}
    text = plain_json(value, ascii_only=ascii_only)
    assert json.loads(text) == json.loads(json.dumps(value))
    assert plain(text, keep="\n") == text
    assert text.isascii() == ascii_only


def test_markup_of_a_picture_is_text():
    text = "</text><script>&\x00\x1b\ud800'\""
    found = ET.fromstring(f"<t>{plain_xml(text)}</t>").text  # our own
    assert found == plain(text)
