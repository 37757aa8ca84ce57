"""Finds the stop string that completes first in text that arrives in pieces. Pure.

Refuses to let out text that may still turn out to be the beginning of a stop string. The result
does not depend on how the text was cut: characters are looked at one at a time, once each.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Scanned:
    """Result of a piece of text."""

    text: str
    """Text that is final."""
    stop: str | None = None
    """The stop string that ended the text; nothing may follow."""


class StopStrings:
    """Searches for several stop strings at once; holds back a possible start of one.

    The first string to complete wins; of several that complete on the same character, the one
    that comes first in the caller's list.

    Args:
        stops: Strings to find, none of them empty; may be empty itself: everything passes.
        include_stop: Whether the text ends with the stop string or before it.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool) -> None:
        self._include_stop = include_stop
        self._automaton = _build(tuple(stops))
        self._state = 0  # the longest beginning of a stop string that the text now ends with
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> Scanned:
        """Take the next piece of text.

        Args:
            text: Any length, also none.
            may_stop: False: a stop string that completes in this piece is text like any other
                (min_tokens); one that only begins in it counts as usual.
        """
        found = self._automaton
        if not found.stops or not text:
            return Scanned(text)
        held = self._held + text
        steps, fallbacks, completes = found.steps, found.fallbacks, found.completes
        state = self._state
        for position, char in enumerate(text):
            while (following := steps[state].get(char)) is None and state:
                state = fallbacks[state]
            state = following or 0
            if (index := completes[state]) is not None and may_stop:
                stop = found.stops[index]
                end = len(self._held) + position + 1
                self._held = ""
                return Scanned(held[: end if self._include_stop else end - len(stop)], stop)
        self._state = state
        keep = found.num_held[state]
        self._held = held[len(held) - keep :]
        return Scanned(held[: len(held) - keep])

    def release(self) -> str:
        """Return the held text: no more text comes."""
        held, self._held = self._held, ""
        self._state = 0
        return held


@dataclass(frozen=True, slots=True)
class _Automaton:
    """The automaton of Aho and Corasick: one step per character, for any number of strings.

    A state is a beginning of a stop string; 0 is the empty one.
    """

    stops: tuple[str, ...]
    steps: list[dict[str, int]]
    fallbacks: list[int]
    """Longest proper suffix of the state that is a state too."""
    completes: list[int | None]
    """Stop string, by index, that ends with this state; the first in the list."""
    num_held: list[int]
    """Characters at the end that may still become a stop string."""


@lru_cache(maxsize=16)  # the samples of one request have the same
def _build(stops: tuple[str, ...]) -> _Automaton:
    if "" in stops:
        raise StateError("an empty stop string: validation must refuse it")
    steps: list[dict[str, int]] = [{}]
    depths, completes = [0], list[int | None]([None])
    for index, stop in enumerate(stops):
        state = 0
        for char in stop:
            if char not in steps[state]:
                steps[state][char] = len(steps)
                steps.append({})
                depths.append(depths[state] + 1)
                completes.append(None)
            state = steps[state][char]
        if completes[state] is None:
            completes[state] = index
    fallbacks, num_held = [0] * len(steps), [0] * len(steps)
    queue = deque(steps[0].values())
    while queue:  # by depth: a fallback is shorter than its state
        state = queue.popleft()
        fallback = fallbacks[state]
        ends = [i for i in (completes[state], completes[fallback]) if i is not None]
        completes[state] = min(ends, default=None)
        num_held[state] = depths[state] if steps[state] else num_held[fallback]
        for char, following in steps[state].items():
            shorter = fallback
            while char not in steps[shorter] and shorter:
                shorter = fallbacks[shorter]
            fallbacks[following] = steps[shorter].get(char, 0)
            queue.append(following)
    return _Automaton(stops, steps, fallbacks, completes, num_held)
