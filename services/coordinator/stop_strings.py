"""Find the stop string that completes first, in text that arrives in pieces. Pure.

Refuses to let out text that may still turn out to be the beginning of a stop string. The result
does not depend on how the text was cut: characters are looked at one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Scanned:
    """What may be let out after a piece of text."""

    text: str
    """Text that is final."""
    stop: str | None = None
    """The stop string that ended the text; nothing may follow."""


class StopStrings:
    """Search for several stop strings at once, holding back what may be the start of one.

    The first string to complete wins; of several that complete on the same character, the one
    that began first (the longest), whatever their order in the request.

    Args:
        stops: Strings to find, none of them empty; may be empty itself: everything passes.
        include_stop: Whether the text ends with the stop string or before it.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool) -> None:
        self._include_stop = include_stop
        # Longest first: of those that complete together the first seen is the right one.
        self._stops = sorted(set(stops), key=len, reverse=True)
        if self._stops and not self._stops[-1]:
            raise StateError("an empty stop string: validation must refuse it")
        self._borders = [_borders(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)  # characters of each that the text now ends with
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> Scanned:
        """Take the next piece of text.

        Args:
            text: Any length, also none.
            may_stop: False: a stop string that completes in this piece is text like any other
                (min_tokens); one that only begins in it counts as usual.
        """
        if not self._stops or not text:
            return Scanned(text)
        held = self._held + text
        for position, char in enumerate(text):
            stop = self._advance(char)
            if stop is not None and may_stop:
                end = len(self._held) + position + 1
                self._held = ""
                return Scanned(held[: end if self._include_stop else end - len(stop)], stop)
        keep = max(self._matched)
        self._held = held[len(held) - keep :]
        return Scanned(held[: len(held) - keep])

    def release(self) -> str:
        """Give what was held back: no more text comes that could complete a stop string."""
        held, self._held = self._held, ""
        self._matched = [0] * len(self._stops)
        return held

    def _advance(self, char: str) -> str | None:
        """Feed one character to every matcher (Knuth-Morris-Pratt); give what it completes."""
        completed: str | None = None
        for index, stop in enumerate(self._stops):
            borders, matched = self._borders[index], self._matched[index]
            while matched and stop[matched] != char:
                matched = borders[matched - 1]
            if stop[matched] == char:
                matched += 1
            if matched == len(stop):
                completed = completed or stop
                matched = borders[-1]  # so that `matched` is always a proper prefix
            self._matched[index] = matched
        return completed


def _borders(stop: str) -> list[int]:
    """For every prefix of `stop`, the length of its longest proper border."""
    borders = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = borders[length - 1]
        if stop[index] == stop[length]:
            length += 1
        borders[index] = length
    return borders
