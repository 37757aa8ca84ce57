"""Estimates the probability that the target keeps a draft after it kept the ones before. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_DECAY = 0.9
"""Decay of older observations, per observation."""
_PRIOR_WEIGHT = 4.0
"""Drafts that the prior counts for."""
UNKNOWN = 0.5
"""Prior until the first draft is verified."""


@dataclass(slots=True)
class Acceptance:
    """A mean over the drafts that the target looked at: those it kept, and the first it did not.

    Drafts after the first one that was not kept say nothing: they continue another text.
    """

    num_kept: float = 0.0
    num_refused: float = 0.0

    def observe(self, num_kept: int, num_refused: int) -> None:
        """Learn from one step; recent ones count more."""
        self.num_kept = self.num_kept * _DECAY + num_kept
        self.num_refused = self.num_refused * _DECAY + num_refused

    def mean(self, prior: float = UNKNOWN) -> float:
        """Probability that the next draft is kept, 0..1; near `prior` while little was seen."""
        num_seen = self.num_kept + self.num_refused
        return (self.num_kept + _PRIOR_WEIGHT * prior) / (num_seen + _PRIOR_WEIGHT)
