"""Where an output ends, and what of it may be seen."""

from __future__ import annotations

import functools
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.services.coordinator.text.output import Finish, OutputProcessor
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.types import FinishReason, SamplingParams
from tests.tiny_tokenizers import EOS, KINDS, TURN, id_of, write

STOP, LENGTH, ABORT = FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT
PROMPT = "Hello. "


@functools.cache
def tokenizer(kind="byte-level"):
    with tempfile.TemporaryDirectory() as directory:
        return Tokenizer.from_directory(write(KINDS[kind](), Path(directory)))


def chars(text):
    """One id a byte of text, so that tests can count tokens; <e> is EOS and <t> another special."""
    tok = tokenizer()
    special = {"<e>": eos(), "<t>": turn()}
    by_byte = {tok.token_bytes(index): index for index in range(tok.vocab_size)}
    ids = []
    while text:
        if text[:3] in special:
            ids.append(special[text[:3]])
            text = text[3:]
        else:
            ids += [by_byte[bytes([byte])] for byte in text[0].encode()]
            text = text[1:]
    return ids


def eos():
    return tokenizer()._backend.token_to_id(EOS)


def turn():
    return tokenizer()._backend.token_to_id(TURN)


def processor(max_tokens=100, *, kind="byte-level", prompt=PROMPT, text_side=True, **values):
    tok = tokenizer(kind)
    params = SamplingParams(**values)
    return OutputProcessor(
        tok if text_side else None,
        tok.encode(prompt),
        params,
        params.stop_token_ids,
        (id_of(tok, EOS),),
        max_tokens,
    )


def run(output, runs):
    """Push runs until the end; give text, tokens kept of each run, and the finish."""
    text, kept = "", []
    for token_ids in runs:
        progress = output.push(token_ids)
        text += progress.text
        kept.append(progress.num_kept)
        if progress.finish is not None:
            return text, kept, progress.finish
    return text, kept, None


# Parameters, max_tokens, tokens one a character, and then: text, tokens kept, finish.
# fmt: off
SHOWN, KEPT = {"skip_special_tokens": False}, {"include_stop_str_in_output": True}
IGNORING = {"ignore_eos": True}
BY_EOS, BY_C, BY_T = (STOP, "<e>", None), (STOP, "c", None), (STOP, "<t>", None)
BY_LENGTH = (LENGTH, None, None)
TABLE = {
    "nothing ends it": ({}, 9, "abc", "abc", 3, None),
    "eos ends it": ({}, 9, "ab<e>cd", "ab", 3, BY_EOS),
    "eos first": ({}, 9, "<e>cd", "", 1, BY_EOS),
    "eos in the last slot is a stop": ({}, 3, "ab<e>cd", "ab", 3, BY_EOS),
    "length": ({}, 3, "abcde", "abc", 3, BY_LENGTH),
    "length of one": ({}, 1, "abcde", "a", 1, BY_LENGTH),
    "ignore_eos runs to length": (IGNORING, 4, "a<e>bcde", "abc", 4, BY_LENGTH),
    "a stop id, without text": ({"stop_token_ids": "c"}, 9, "abcd", "ab", 3, BY_C),
    "a stop id in the last slot": ({"stop_token_ids": "c"}, 3, "abcd", "ab", 3, BY_C),
    "a stop id with its text": (
        {"stop_token_ids": "c"} | KEPT, 9, "abcd", "abc", 3, BY_C),
    "a special stop id has no text": (
        {"stop_token_ids": "<t>"} | KEPT, 9, "ab<t>d", "ab", 3, BY_T),
    "a special stop id has text if asked for twice": (
        {"stop_token_ids": "<t>"} | KEPT | SHOWN, 9, "ab<t>d", f"ab{TURN}", 3, BY_T),
    "eos has no text even if shown": (SHOWN, 9, "<t>b<e>", f"{TURN}b", 3, BY_EOS),
    "ignored eos has text if special tokens are shown": (
        SHOWN | IGNORING, 3, "a<e>b", f"a{EOS}b", 3, BY_LENGTH),
    "eos as a stop id is heeded although eos is ignored": (
        IGNORING | {"stop_token_ids": "<e>"}, 9, "ab<e>c", "ab", 3, BY_EOS),
    "a stop string in the first tokens of a long run": (
        {"stop": ("ab",)}, 99, "xabcdefghijklmnop", "x", 3, (STOP, None, "ab")),
    "a stop string over many tokens": (
        {"stop": ("b c d",)}, 99, "a b c d e", "a ", 7, (STOP, None, "b c d")),
    "what follows a stop string never leaks": (
        {"stop": ("b",)}, 99, "abc<e>", "a", 2, (STOP, None, "b")),
    "included it ends the text": (
        {"stop": ("bc",)} | KEPT, 99, "abcd", "abc", 3, (STOP, None, "bc")),
    "a stop string in the last slot is a stop": (
        {"stop": ("bc",)}, 3, "abcd", "a", 3, (STOP, None, "bc")),
    "eos comes before a stop string of its text": (
        {"stop": (EOS,)} | SHOWN, 9, "a<e>", "a", 2, BY_EOS),
    "a special token completes a stop string if shown": (
        {"stop": (TURN,)} | SHOWN, 9, "a<t>b", "a", 2, (STOP, None, TURN)),
    "skipped special tokens do not part a stop string": (
        {"stop": ("ab",)}, 9, "xa<t>bc", "x", 4, (STOP, None, "ab")),
    "held back text comes out at length": ({"stop": ("bcd",)}, 3, "abc", "abc", 3, BY_LENGTH),
    "held back text comes out at eos": ({"stop": ("bcd",)}, 9, "abc<e>", "abc", 4, BY_EOS),
    "held back text comes out at a stop id": (
        {"stop": ("abcd",), "stop_token_ids": "c"}, 9, "abc", "ab", 3, BY_C),
    "min_tokens passes eos over": ({"min_tokens": 2}, 9, "a<e>b<e>c", "ab", 4, BY_EOS),
    "eos as token m is not yet a stop": ({"min_tokens": 2}, 9, "a<e>", "a", 2, None),
    "eos as token m + 1 is a stop": ({"min_tokens": 2}, 9, "ab<e>c", "ab", 3, BY_EOS),
    "min_tokens passes stop ids over": (
        {"min_tokens": 3, "stop_token_ids": "c"}, 9, "acbcx", "acb", 4, BY_C),
    "min_tokens passes stop strings over": (
        {"min_tokens": 3, "stop": ("ab",)}, 9, "xabcabz", "xabc", 6, (STOP, None, "ab")),
    "a stop string may begin before min_tokens": (
        {"min_tokens": 3, "stop": ("bcd",)}, 9, "abcdz", "a", 4, (STOP, None, "bcd")),
    "min_tokens of max_tokens runs to length": (
        {"min_tokens": 3}, 3, "<e><e><e>", "", 3, BY_LENGTH),
    "length inside a character ends in a replacement": ({}, 3, "a😀b", "a\ufffd", 3, BY_LENGTH),
}
# fmt: on


def ids_in(value):
    return tuple(chars(value))


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
@pytest.mark.parametrize("cut", ["at once", "one by one", "in threes"])
def test_an_output_ends_where_it_should_however_it_arrives(case, cut):
    values, max_tokens, tokens, text, kept, finish = case
    values = dict(values)
    if "stop_token_ids" in values:
        values["stop_token_ids"] = ids_in(values["stop_token_ids"])
    ids = chars(tokens)
    size = {"at once": len(ids), "one by one": 1, "in threes": 3}[cut]
    runs = [ids[at : at + size] for at in range(0, len(ids), size)]
    seen, kepts, finished = run(processor(max_tokens, **values), runs)
    if finish is None:
        assert finished is None
    else:
        reason, stop_id, stop_string = finish
        want_id = None if stop_id is None else ids_in(stop_id)[0]
        assert finished == Finish(reason, want_id, stop_string)
    assert sum(kepts) == kept
    assert seen == text


LETTERS = st.lists(st.sampled_from(["a", "b", "c", " ", "é", "😀", "<e>", "<t>"]), max_size=20)


PARAMS = st.fixed_dictionaries(
    {
        "stop": st.lists(st.text(alphabet="abcé ", min_size=1, max_size=4), max_size=3).map(tuple),
        "min_tokens": st.integers(0, 6),
        "include_stop_str_in_output": st.booleans(),
        "ignore_eos": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "stop_token_ids": st.sets(st.sampled_from(["c", "<t>"])).map("".join),
    }
)


@given(LETTERS, st.lists(st.integers(0, 60), max_size=10), st.integers(1, 30), PARAMS)
def test_any_split_into_runs_gives_the_same_text_tokens_and_finish(
    letters, places, max_tokens, params
):
    """And no token is lost or taken beyond the end."""
    ids = chars("".join(letters))
    values = {**params, "stop_token_ids": ids_in(params["stop_token_ids"])}
    whole = run(processor(max_tokens, **values), [ids])
    edges = [0, *sorted(place % (len(ids) + 1) for place in places), len(ids)]
    parts = run(processor(max_tokens, **values), [ids[a:b] for a, b in pairwise(edges)])
    assert parts[0] == whole[0]  # while it goes on, both hold the same back
    assert whole[2] is not None or sum(whole[1]) == len(ids)
    assert sum(parts[1]) == sum(whole[1]) <= max_tokens
    assert parts[2] == whole[2]


@given(LETTERS, st.lists(st.text(alphabet="abc ", min_size=1, max_size=3), min_size=1, max_size=3))
def test_a_stop_string_never_shows_in_any_delta_so_far(letters, stops):
    output, text = processor(1000, stop=tuple(stops), ignore_eos=True), ""
    for index in chars("".join(letters)):
        progress = output.push([index])
        text += progress.text
        assert not any(stop in text for stop in stops)
        if progress.finish is not None:
            break


def test_a_rejected_eos_leaves_no_trace():
    """Only committed tokens arrive, so a drafted EOS that the target refused never does."""
    output = processor()
    assert run(output, [chars("ab"), chars("cd<e>")])[2] == Finish(STOP, eos())


def test_a_stop_string_in_the_prompt_does_not_stop():
    output = processor(4, prompt="Hello STOP", stop=("STOP", "OPab"))
    assert run(output, [chars("abcd")]) == ("abcd", [4], Finish(LENGTH))


def test_text_lags_behind_ids_by_no_more_than_a_possible_stop_string():
    """Ids are never held back."""
    output = processor(stop=("bcd",))
    assert output.push(chars("ab")) == output_progress(2, "a")
    assert output.push(chars("c")) == output_progress(1, "")
    assert output.push(chars("x")) == output_progress(1, "bcx")


def output_progress(num_kept, text, finish=None):
    return type(processor().push([]))(num_kept, text, finish)


def test_an_empty_run_is_nothing():
    output = processor()
    assert output.push([]) == output_progress(0, "")
    assert output.num_tokens == 0
    assert output.finish is None


def test_padding_ids_count_and_have_no_text():
    output = processor(3)
    assert output.push([*chars("a"), 99_999, *chars("b")]) == output_progress(
        3, "ab", Finish(LENGTH)
    )
    assert output.num_tokens == 3


def test_abort_lets_out_a_possible_stop_string_but_no_half_character():
    output = processor(stop=("bcd",))
    assert output.push(chars("abc")).text == "a"
    assert output.abort() == output_progress(0, "bc", Finish(ABORT))
    output = processor()
    assert output.push(chars("a😀")[:3]).text == "a"
    assert output.abort() == output_progress(0, "", Finish(ABORT))


def test_abort_before_any_token_finishes():
    assert processor().abort() == output_progress(0, "", Finish(ABORT))


@pytest.mark.parametrize("end", [lambda o: o.push(chars("<e>")), lambda o: o.abort()])
@pytest.mark.parametrize("then", [lambda o: o.push(chars("a")), lambda o: o.abort()])
def test_after_the_end_nothing_more_is_taken(end, then):
    output = processor()
    end(output)
    before = output.finish
    with pytest.raises(StateError, match=r"after the output ended with (STOP|ABORT)"):
        then(output)
    assert output.finish is before


def test_a_service_without_tokenizer_ends_outputs_without_text():
    output = processor(5, text_side=False, stop_token_ids=(77,))
    assert output.push([1000, 1001]) == output_progress(2, "")
    assert output.push([77, 5]) == output_progress(1, "", Finish(STOP, 77))
    assert processor(2, text_side=False).push([9, 9, 9]) == output_progress(2, "", Finish(LENGTH))
    assert processor(text_side=False).abort() == output_progress(0, "", Finish(ABORT))
    assert processor(text_side=False).push([7, eos()]).finish == Finish(STOP, eos())


def test_stop_strings_without_a_tokenizer_are_a_bug_of_the_caller():
    with pytest.raises(StateError, match="no tokenizer"):
        processor(text_side=False, stop=("x",))


def test_max_tokens_under_one_is_a_bug_of_the_caller():
    with pytest.raises(StateError, match="max_tokens is 0"):
        processor(0)


def test_a_stop_string_of_replacement_characters_is_found_at_the_end():
    output = processor(3, stop=("\ufffd",))
    assert output.push(chars("a😀")) == output_progress(3, "a", Finish(STOP, None, "\ufffd"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_stop_strings_work_with_every_kind_of_tokenizer(kind):
    ids = [i for i in tokenizer(kind).encode("hello world") if i not in tokenizer(kind).special_ids]
    text, _, finish = run(processor(kind=kind, prompt="say", stop=("wor",)), [[i] for i in ids])
    assert finish == Finish(STOP, None, "wor")
    assert text.strip() == "hello"
