"""What a simulated target writes, and which drafts of it stand. Seeded; nothing is computed. Pure.

As with the real target, a token depends on (seed, position) alone, and so does whether a draft
there is right: another schedule, k or batch meets the same luck, so schedules can be compared.

A draft stands if a number drawn for its position is under a probability: that of its place among
the drafts of its step, moved by an effect of the request in log-odds. Numbers of neighbouring
positions may be correlated: text that is easy stays easy for a while.

What a drafter says of a draft knows something of whether it stands, and not all: a normal number
whose mean is higher if it does, so far that of a draft that stands and one that does not the
former has the higher score with probability AUC. As a margin it lies in 0..4, so its curve is a
logistic one; as a surprisal it is turned round.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass
from typing import Final

from minedraft.errors import ConfigError

VOCAB_SIZE: Final = 65_536
MAX_SPREAD: Final = 10.0
MAX_AUTOCORRELATION: Final = 0.999
MAX_AUC: Final = 0.999
_MOST_MARGIN: Final = 4.0
_SURPRISAL_SCALE: Final = 0.35
"""Surprisal per nat that a margin lacks: half of the drafts of middling margin stand."""
_MEMORY: Final = 256
"""Positions behind the last one that are remembered."""
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
    auc: float = 0.75
    """Of scores, 0.5..0.999: that of a draft that stands is higher than that of one that does not,
    with this probability. 0.75 is what margins of real pairs have; 0.5: scores say nothing."""

    @property
    def distance(self) -> float:
        """Between the means of scores of drafts that stand and that do not, in deviations."""
        return math.sqrt(2) * statistics.NormalDist().inv_cdf(self.auc)

    def __post_init__(self) -> None:
        if not self.by_position or not all(0 <= each <= 1 for each in self.by_position):
            raise ConfigError(f"acceptance={list(self.by_position)}: want numbers from 0 to 1")
        if not 0 <= self.spread <= MAX_SPREAD:
            raise ConfigError(f"spread={self.spread}: want 0..{MAX_SPREAD:g}")
        if not 0 <= self.autocorrelation <= MAX_AUTOCORRELATION:
            raise ConfigError(
                f"autocorrelation={self.autocorrelation}: want 0..{MAX_AUTOCORRELATION}"
            )
        if not 0.5 <= self.auc <= MAX_AUC:  # noqa: PLR2004 chance
            raise ConfigError(f"auc={self.auc}: want 0.5..{MAX_AUC}")


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
        self._distance = model.distance
        self._scores = random.Random(f"{chance}/{seed}/scores")
        """Apart, so that whether drafts stand does not depend on whether scores are asked for."""
        self._noise: list[float] = []
        """As `_drawn`, as far as scores were asked for."""

    def token(self, position: int) -> int:
        """Return the target's token at a position."""
        return (self._seed * _STRIDE + position * _STEP + 13) % VOCAB_SIZE

    def num_accepted(self, position: int, num_draft_tokens: int) -> int:
        """Count the drafts from a position on that stand.

        Args:
            position: Committed length. It falls by little from call to call.
            num_draft_tokens: k.
        """
        self._draw(position + num_draft_tokens - 1)
        self._forget(position - _MEMORY)
        last = len(self._probabilities) - 1
        for depth in range(num_draft_tokens):
            drawn = self._drawn[position + depth - self._first]
            if drawn >= self._probabilities[min(depth, last)]:
                return depth
        return num_draft_tokens

    def scores(
        self, position: int, num_draft_tokens: int, *, is_surprisal: bool = False
    ) -> tuple[float, ...]:
        """Say of each draft from a position on what a drafter says.

        Args:
            position: Committed length. It falls by little from call to call.
            num_draft_tokens: k.
            is_surprisal: Whether to say surprisals, not margins.

        Returns:
            Each >= 0; margins of at most 4.
        """
        self._draw(position + num_draft_tokens - 1)
        last, said = len(self._probabilities) - 1, []
        for depth in range(num_draft_tokens):
            index = position + depth - self._first
            while len(self._noise) <= index:
                self._noise.append(self._scores.gauss(0.0, 1.0))
            stands = self._drawn[index] < self._probabilities[min(depth, last)]
            mean = _MOST_MARGIN / 2 + (self._distance if stands else -self._distance) / 2
            margin = min(max(mean + self._noise[index], 0.0), _MOST_MARGIN)
            said.append(_SURPRISAL_SCALE * (_MOST_MARGIN - margin) if is_surprisal else margin)
        return tuple(said)

    def _forget(self, position: int) -> None:
        """Numbers of positions before this one are not asked for any more."""
        num_old = position - self._first
        if num_old > _MEMORY:
            while len(self._noise) < num_old and self._noise:
                self._noise.append(self._scores.gauss(0.0, 1.0))
            del self._drawn[:num_old], self._noise[:num_old]
            self._first = position

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
