"""Drafts with scores, and what becomes of them, at an acceptance that is known. Seeded."""

from __future__ import annotations

import random
from typing import NamedTuple

from minedraft.services.coordinator.core.logistic import sigmoid

SLOPE = 0.95
"""Of the logit of a draft by its score."""


class Row(NamedTuple):
    """Drafts of one row of a step."""

    scores: tuple[float, ...]
    num_matched: int
    num_resolved: int


class Drafter:
    """Drafts whose margins say something of them: AUC about 0.7.

    Args:
        biases: By position: logit of a draft whose margin is 0.
    """

    def __init__(self, *biases: float, seed: int = 1) -> None:
        self.biases = biases
        self._chance = random.Random(seed)

    def probability(self, position: int, score: float) -> float:
        """Of a draft of that score."""
        return sigmoid(SLOPE * score + self.biases[position])

    def rate(self, position: int) -> float:
        """Of a draft, before it has a score."""
        return sum(self.probability(position, s / 100) for s in range(401)) / 401

    def row(self, num_judged: int | None = None) -> Row:
        """Draft one row; of its drafts at most `num_judged` are judged."""
        scores = tuple(self._chance.uniform(0, 4) for _ in self.biases)
        matched = 0
        most = len(scores) if num_judged is None else num_judged
        for position in range(most):
            if self._chance.random() >= self.probability(position, scores[position]):
                return Row(scores, matched, position + 1)
            matched += 1
        return Row(scores, matched, matched)
