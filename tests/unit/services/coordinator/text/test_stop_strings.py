"""Stop strings in text that arrives in pieces: found, never leaked, any cut."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minedraft.errors import StateError
from minedraft.services.coordinator.text.stop_strings import StopStrings

TEXT = st.text(alphabet="ab<", max_size=30)
STOPS = st.lists(st.text(alphabet="ab<", min_size=1, max_size=5), max_size=4)


def one_shot(text, stops, *, include_stop):
    """The definition: the stop that completes first; of those, the first in the list."""
    ends = [
        (end, rank, s)
        for rank, s in enumerate(stops)
        for end in range(len(text) + 1)
        if text[:end].endswith(s)
    ]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end if include_stop else end - len(stop)], stop


def cut(text, places):
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def run(pieces, stops, *, include_stop):
    finder, out = StopStrings(stops, include_stop=include_stop), []
    for piece in pieces:
        scanned = finder.push(piece)
        out.append(scanned.text)
        if scanned.stop is not None:
            return out, scanned.stop
    return [*out, finder.release()], None


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=12), st.booleans())
@example("aab", ["ab"], [1, 2], False)
@example("aaab", ["aab"], [], False)
@example("abab<", ["abab", "b"], [], False)
@example("aaaab", ["aab", "aaaaa"], [1, 2, 3, 4], True)
def test_any_cut_gives_what_the_whole_text_gives(text, stops, places, include_stop):
    out, stop = run(cut(text, places), stops, include_stop=include_stop)
    assert ("".join(out), stop) == one_shot(text, stops, include_stop=include_stop)


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=12))
def test_a_stop_string_never_leaks_into_what_was_let_out(text, stops, places):
    out, _ = run(cut(text, places), stops, include_stop=False)
    for upto in range(len(out) + 1):
        assert not any(stop in "".join(out[:upto]) for stop in stops)


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=12))
def test_only_what_may_be_a_stop_string_is_held_back(text, stops, places):
    finder, seen, out = StopStrings(stops, include_stop=False), "", ""
    for piece in cut(text, places):
        scanned = finder.push(piece)
        if scanned.stop is not None:
            return
        seen += piece
        out += scanned.text
        held = seen[len(out) :]
        starts = {stop[:end] for stop in stops for end in range(1, len(stop))}
        longest = max((len(s) for s in starts if seen.endswith(s)), default=0)
        assert len(held) == longest


@pytest.mark.parametrize(
    ("text", "stops", "kept", "stop"),
    [
        ("one STOP two", ["STOP"], "one ", "STOP"),
        ("one two", ["two", "e"], "on", "e"),
        ("xab", ["b", "ab"], "xa", "b"),
        ("xab", ["ab", "b"], "x", "ab"),
        ("abc", ["abcd", "b"], "a", "b"),
        ("city of", [" of", "ty of"], "city", " of"),
        ("city of", ["ty of", " of"], "ci", "ty of"),
        ("xabc", ["abcd", "bc", "c"], "xa", "bc"),
        ("aaa", ["aa"], "", "aa"),
        ("日本語", ["本"], "日", "本"),
    ],
)
def test_the_first_to_complete_wins_and_of_those_the_first_in_the_list(text, stops, kept, stop):
    assert run([text], stops, include_stop=False) == ([kept], stop)


def test_included_the_text_ends_exactly_with_the_stop_string():
    """The piece that completed it carries more."""
    assert run(["a<", "/x> and more"], ["</x>"], include_stop=True)[0] == ["a", "</x>"]


def test_without_stop_strings_everything_passes_at_once():
    finder = StopStrings([], include_stop=False)
    assert finder.push("anything").text == "anything"
    assert finder.release() == ""


def test_a_stop_string_that_may_not_stop_yet_is_text():
    finder = StopStrings(["ab"], include_stop=False)
    assert finder.push("abab", may_stop=False).text == "abab"
    assert finder.push("c").text == "c"


def test_a_stop_string_begun_before_it_may_stop_counts_when_it_completes_after():
    finder = StopStrings(["abc"], include_stop=False)
    assert finder.push("xab", may_stop=False).text == "x"
    scanned = finder.push("cd")
    assert (scanned.text, scanned.stop) == ("", "abc")


def test_after_a_stop_string_that_might_not_stop_its_tail_is_still_watched():
    finder = StopStrings(["aba"], include_stop=False)
    assert finder.push("aba", may_stop=False).text == "ab"
    scanned = finder.push("ba")
    assert (scanned.text, scanned.stop) == ("", "aba")


def test_an_empty_stop_string_is_a_bug_of_the_caller():
    with pytest.raises(StateError):
        StopStrings(["x", ""], include_stop=False)


def test_the_worst_request_costs_little_a_character():
    stops = [f"{'a' * 255}{index:X}" for index in range(16)]
    finder = StopStrings(stops, include_stop=False)
    begin = time.process_time()
    for _ in range(2_000):
        finder.push("a" * 40)
    assert (time.process_time() - begin) / 2_000 < 1e-4  # a token; measured: some 7 us


def test_as_many_stop_strings_as_may_be_are_prepared_quickly():
    stops = [f"{index:x}{'ab' * 127}c" for index in range(16)]
    begin = time.process_time()
    StopStrings(stops, include_stop=False)
    assert time.process_time() - begin < 0.05  # measured: some 4 ms
