"""Text that grows by tokens: the same as at once, never half a character."""

from __future__ import annotations

import functools
import tempfile
import time
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.text.detokenizer import Detokenizer
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from tests.tiny_tokenizers import BOS, CORPUS, EOS, KINDS, id_of, write


@functools.cache
def tokenizer(kind):
    with tempfile.TemporaryDirectory() as directory:
        return Tokenizer.from_directory(write(KINDS[kind](), Path(directory)))


def deltas(kind, prompt, ids, **options):
    detokenizer = Detokenizer(tokenizer(kind), prompt, **options)
    return [*(detokenizer.push([index]) for index in ids), detokenizer.flush()]


def ids_of(kind, text):
    """Ids of a text without special tokens."""
    tok = tokenizer(kind)
    return [index for index in tok.encode(text) if index not in tok.special_ids]


KIND = st.sampled_from(sorted(KINDS))
ALL_BYTES = st.sampled_from(["byte-level", "sentencepiece", "gemma"])  # nothing unknown to them
ANY_ID = st.integers(-3, 450)
EXACT = st.sampled_from(["byte-level", "metaspace"])


@given(ALL_BYTES, st.text())
def test_any_text_comes_back(kind, text):
    text = text.replace("▁", "_")  # SentencePiece's own mark cannot be told from a space
    detokenizer = Detokenizer(tokenizer(kind), [])
    ids = ids_of(kind, text)
    assert detokenizer.push(ids) + detokenizer.flush() == text


@given(KIND, st.sampled_from(CORPUS), st.booleans())
def test_deltas_are_the_text_at_once(kind, text, skip):
    ids = tokenizer(kind).encode(text)
    streamed = "".join(deltas(kind, [], ids, skip_special_tokens=skip))
    assert streamed == tokenizer(kind).decode(ids, skip_special_tokens=skip)


@given(EXACT, st.lists(ANY_ID, max_size=20), st.booleans())
def test_deltas_of_any_ids_are_the_librarys_text(kind, ids, skip):
    """Broken bytes, special tokens and padding included."""
    streamed = "".join(deltas(kind, [], ids, skip_special_tokens=skip))
    assert streamed == tokenizer(kind).decode(ids, skip_special_tokens=skip)


@given(
    KIND,
    st.lists(ANY_ID, max_size=8),
    st.lists(st.lists(ANY_ID, max_size=6), max_size=6),
    st.booleans(),
)
def test_any_cut_of_any_ids_gives_the_same_text(kind, prompt, runs, skip):
    detokenizer = Detokenizer(tokenizer(kind), prompt, skip_special_tokens=skip)
    pushed = "".join(detokenizer.push(run) for run in runs) + detokenizer.flush()
    assert pushed == "".join(deltas(kind, prompt, list(chain(*runs)), skip_special_tokens=skip))


@given(ALL_BYTES, st.text(alphabet="aé你😀 ", min_size=1))
def test_no_delta_holds_half_a_character(kind, text):
    ids = ids_of(kind, text)
    detokenizer, out = Detokenizer(tokenizer(kind), []), ""
    for index in ids:
        delta = detokenizer.push([index])
        assert "\ufffd" not in delta
        out += delta
        assert text.startswith(out)
    assert out == text  # and nothing waits that is complete


@given(KIND, st.sampled_from(CORPUS), st.integers(1, 60))
def test_output_continues_the_prompts_text(kind, text, split):
    """Spaces at the seam are the ones that the whole text has."""
    ids = tokenizer(kind).encode(text)
    prompt, output = ids[:split], ids[split:]
    whole, before = tokenizer(kind).decode(ids), tokenizer(kind).decode(prompt)
    streamed = "".join(deltas(kind, prompt, output))
    if not before.endswith("\ufffd"):
        assert before + streamed == whole
    else:  # the prompt was cut inside a character, which the output completes
        assert whole.endswith(streamed)
        assert not streamed.startswith("\ufffd")


@pytest.mark.parametrize("kind", ["sentencepiece", "gemma", "metaspace", "byte-level"])
def test_a_word_after_a_prompt_keeps_its_space(kind):
    """As in "Hello." + " world"."""
    tok = tokenizer(kind)
    prompt = tok.encode("Hello.")
    [word] = [index for index in range(tok.vocab_size) if tok.token_bytes(index) == b" world"]
    assert "".join(deltas(kind, prompt, [word])) == " world"


@pytest.mark.parametrize("kind", ["sentencepiece", "metaspace"])
def test_a_first_word_after_special_tokens_alone_has_no_dummy_space(kind):
    bos = tokenizer(kind)._backend.token_to_id(BOS)
    assert "".join(deltas(kind, [bos, bos], ids_of(kind, "Hello world"))) == "Hello world"


def test_only_one_space_is_the_dummy_one():
    space = tokenizer("sentencepiece")._backend.token_to_id("▁")
    assert deltas("sentencepiece", [], [space, space, space]) == ["", " ", " ", ""]


def test_ids_beyond_the_vocabulary_have_no_text_and_no_effect():
    tok = tokenizer("byte-level")
    ids = ids_of("byte-level", "a😀b")
    padded = [part for index in ids for part in (index, tok.vocab_size, 151_935, 2**40, -1)]
    assert "".join(deltas("byte-level", [tok.vocab_size + 1], padded)) == "a😀b"


def test_bytes_of_no_character_become_replacements_as_soon_as_that_is_certain():
    tok = tokenizer("byte-level")
    by_byte = {tok.token_bytes(index): index for index in range(tok.vocab_size)}
    garbage = [by_byte[bytes([byte])] for byte in (0xE4, 0xE4, 0x80, 0xFF, 0xF0, 0x9F)]
    assert deltas("byte-level", [], garbage) == ["", "\ufffd", "", "\ufffd" * 2, "", "", "\ufffd"]


@given(ALL_BYTES, st.lists(ANY_ID, min_size=4, max_size=30))
def test_at_most_three_tokens_wait_for_the_rest_of_a_character(kind, ids):
    tok = tokenizer(kind)
    detokenizer, waiting = Detokenizer(tok, []), 0
    for index in ids:
        has_text = index not in tok.special_ids and tok.token_bytes(index)
        delta = detokenizer.push([index])
        waiting = 0 if delta else waiting + bool(has_text)
        assert waiting <= 4  # three bytes, and SentencePiece's dummy space


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece"])
def test_a_prompt_that_ends_inside_a_character_leaves_no_trace_if_it_is_not_completed(kind):
    tok = tokenizer(kind)
    by_bytes = {tok.token_bytes(index): index for index in range(tok.vocab_size)}
    half = [by_bytes[b"\xf0"], by_bytes[b"\x9f"]]
    assert "".join(deltas(kind, half, ids_of(kind, "x")[-1:])) == "x"
    assert "".join(deltas(kind, half, [by_bytes[b"\x98"], by_bytes[b"\x80"]])) == "😀"
    assert "".join(deltas(kind, half, [])) == ""


def test_special_tokens_have_text_if_asked_for():
    eos = id_of(tokenizer("byte-level"), EOS)
    word = ids_of("byte-level", "hello")
    assert "".join(deltas("byte-level", [], [*word, eos])) == "hello"
    shown = deltas("byte-level", [], [*word, eos], skip_special_tokens=False)
    assert "".join(shown) == f"hello{EOS}"


def test_a_character_inside_a_stream_of_skipped_tokens_is_whole():
    tok = tokenizer("byte-level")
    eos = id_of(tok, EOS)
    spread = [part for index in ids_of("byte-level", "😀") for part in (index, eos)]
    assert "".join(deltas("byte-level", [], spread)) == "😀"


class RaisingTokenizer:
    """A tokenizer without pieces, whose library raises on one id."""

    pieces = None
    special_ids = frozenset()
    vocab_size = 100

    def decode(self, ids, skip_special_tokens=True):
        if 13 in ids:
            raise RuntimeError("Invalid prefix encountered")
        return "".join(f"[{index}]" for index in ids)

    def token(self, token_id):
        return f"<{token_id}>"

    def token_bytes(self, token_id):
        return b"x"


def test_a_request_survives_a_library_that_raises():
    detokenizer = Detokenizer(RaisingTokenizer(), [1, 2])
    text = "".join(detokenizer.push([index]) for index in (3, 13, *range(20, 40)))
    assert text.startswith("[3]")
    assert text.endswith("[37][38][39]")  # good again once the id has left the window


def test_without_pieces_broken_text_waits_for_four_tokens_at_most():
    tok = tokenizer("wordpiece")
    broken = tok._backend.token_to_id("��")
    out = deltas("wordpiece", [], [broken] * 5)
    assert out[:3] == ["", "", ""]
    assert out[3]
    assert "".join(out) == tok.decode([broken] * 5)


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece", "wordpiece"])
def test_a_token_costs_the_same_however_long_the_output_is(kind):
    detokenizer = Detokenizer(tokenizer(kind), [5] * 10)
    begin = time.process_time()
    for index in range(20_000):
        detokenizer.push((5 + index % 5,))
    # A quadratic one takes minutes; measured 1 us (pieces) and 15 us (window) a token.
    assert time.process_time() - begin < 5


def test_a_long_prompt_costs_only_its_end():
    prompt = [50] * 1_000_000
    begin = time.process_time()
    for _ in range(100):
        Detokenizer(tokenizer("byte-level"), prompt)
    assert time.process_time() - begin < 1
