"""What a simulated target writes, and which drafts of it stand. Seeded; nothing is computed. Pure.

As with the real target, a token depends on (seed, position) alone, and so does whether a draft
there is right: another schedule, k or batch meets the same luck, so schedules can be compared.

A draft stands if a number drawn for its position is under a probability: that of its place among
the drafts of its step, moved by an effect of the request in log-odds. Numbers of neighbouring
positions may be correlated: text that is easy stays easy for a while.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from minedraft.errors import ConfigError

VOCAB_SIZE: Final = 65_536
MAX_SPREAD: Final = 10.0
MAX_AUTOCORRELATION: Final = 0.999
_STRIDE, _STEP = 1_000_003, 7_919
"""Primes: so that tokens differ between requests and positions."""


@dataclass(frozen=True, slots=True)
class AcceptanceModel:
    """How likely drafts stand.

    Raises:
        ConfigError: a number is out of its range.
    """

    by_position: tuple[float, ...] = (0.7,)
    """Probability that the first, second, ... draft of a step stands if those before it do. The
    last one holds for all that follow."""
    spread: float = 0.0
    """Standard deviation of the effect of a request, in log-odds."""
    autocorrelation: float = 0.0
    """Between the numbers of neighbouring positions, 0..0.999."""
    effects: tuple[float, ...] = ()
    """Effects of the requests in turn, in place of drawn ones."""

    def __post_init__(self) -> None:
        if not self.by_position or not all(0 <= each <= 1 for each in self.by_position):
            raise ConfigError(f"acceptance={list(self.by_position)}: want numbers from 0 to 1")
        if not 0 <= self.spread <= MAX_SPREAD:
            raise ConfigError(f"spread={self.spread}: want 0..{MAX_SPREAD:g}")
        if not 0 <= self.autocorrelation <= MAX_AUTOCORRELATION:
            raise ConfigError(
                f"autocorrelation={self.autocorrelation}: want 0..{MAX_AUTOCORRELATION}"
            )


class Output:
    """The continuation of one prompt with one seed.

    Args:
        model: How likely drafts stand.
        seed: Of the request.
        start: Length of the prompt.
        chance: Seed of the whole simulation.
    """

    def __init__(self, model: AcceptanceModel, seed: int, start: int, chance: int) -> None:
        self._seed = seed
        self._random = random.Random(f"{chance}/{seed}")
        if model.effects:
            effect = model.effects[(seed - 1) % len(model.effects)]
        else:
            effect = self._random.gauss(0.0, model.spread) if model.spread else 0.0
        self._probabilities = tuple(_moved(each, effect) for each in model.by_position)
        self._correlation = model.autocorrelation
        self._normal = self._random.gauss(0.0, 1.0) if model.autocorrelation else 0.0
        self._first = start
        """Position of the first of `_drawn`."""
        self._drawn: list[float] = []

    def token(self, position: int) -> int:
        """Return the target's token at a position."""
        return (self._seed * _STRIDE + position * _STEP + 13) % VOCAB_SIZE

    def num_accepted(self, position: int, num_draft_tokens: int) -> int:
        """Count the drafts from a position on that stand.

        Args:
            position: Committed length. It never falls from call to call.
            num_draft_tokens: k.
        """
        if position > self._first + 256:
            self._draw(position - 1)
            del self._drawn[: position - self._first]
            self._first = position
        self._draw(position + num_draft_tokens - 1)
        last = len(self._probabilities) - 1
        for depth in range(num_draft_tokens):
            drawn = self._drawn[position + depth - self._first]
            if drawn >= self._probabilities[min(depth, last)]:
                return depth
        return num_draft_tokens

    def _draw(self, position: int) -> None:
        """Have a number for every position up to this one."""
        for _ in range(position + 1 - self._first - len(self._drawn)):
            if not self._correlation:
                self._drawn.append(self._random.random())
                continue
            noise = self._random.gauss(0.0, 1.0) * math.sqrt(1 - self._correlation**2)
            self._normal = self._correlation * self._normal + noise
            self._drawn.append(0.5 * math.erfc(-self._normal / math.sqrt(2)))


def prompt(
    request: int, num_tokens: int, *, prefix: int = 0, num_prefix: int = 0
) -> tuple[int, ...]:
    """Write a prompt that no other request has.

    Args:
        request: Its number.
        num_tokens: Its length.
        prefix: Number of the beginning that it shares with others.
        num_prefix: Length of that beginning; 0: it shares none.
    """
    num_shared = min(num_prefix, num_tokens)
    shared = [(-prefix * _STRIDE - i * _STEP) % VOCAB_SIZE for i in range(num_shared)]
    own = [(request * _STRIDE + i * _STEP) % VOCAB_SIZE for i in range(num_shared, num_tokens)]
    return (*shared, *own)


def _moved(probability: float, effect: float) -> float:
    """Move a probability by an effect in log-odds."""
    if not effect or probability in {0.0, 1.0}:
        return probability
    return 1 / (1 + (1 - probability) / probability * math.exp(-effect))
