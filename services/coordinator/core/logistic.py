"""Fits a curve sigma(slope * score + bias) to counted outcomes, by Newton steps. Pure.

The problem is convex and its prior is never empty, so there is one answer, wherever a fit begins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_RIDGE: Final = 0.5
"""Pull of a slope and a bias towards those of the prior, in labels of most information."""
_MAX_STEPS: Final = 64
_PRECISION: Final = 1e-6
_MOST_STEP: Final = 2.0
_MAX_LOGIT: Final = 30.0


class Line(NamedTuple):
    """A logit that is linear in the score."""

    slope: float
    bias: float

    def probability(self, score: float) -> float:
        """Return sigma(slope * score + bias); 0..1."""
        return sigmoid(self.slope * score + self.bias)


class Count(NamedTuple):
    """Drafts of about one score."""

    score: float
    num: float
    """> 0; faded ones count less."""
    num_kept: float


def fit(
    counts: Sequence[Count],
    prior: Line,
    prior_weight: float,
    *,
    sign: int,
    begin: Line | None = None,
) -> Line:
    """Fit a line.

    Args:
        counts: What was seen; may be empty.
        prior: What is believed without it.
        prior_weight: Labels that this counts for, spread over the scores as `counts` are.
        sign: 1: a slope is >= 0; -1: <= 0. One of the other sign is refused, and becomes 0.
        begin: Where the answer may be near; None: at the prior. It saves steps.

    Returns:
        A finite line.
    """
    total = sum(count.num for count in counts)
    if not total:
        return prior
    share = prior_weight / total
    seen = [
        (
            count.score,
            count.num * (1 + share),
            count.num_kept + count.num * share * prior.probability(count.score),
        )
        for count in counts
    ]
    found = _newton(seen, begin or prior, prior, has_slope=True)
    if found.slope * sign < 0:
        flat = Line(0.0, prior.bias)
        found = _newton(seen, flat, flat, has_slope=False)
    return found


def sigmoid(logit: float) -> float:
    """Return 1 / (1 + exp(-logit)), for any finite logit."""
    logit = max(logit, -_MAX_LOGIT)
    return 1.0 / (1.0 + math.exp(-logit))


def _newton(
    seen: Sequence[tuple[float, float, float]], begin: Line, prior: Line, *, has_slope: bool
) -> Line:
    """Walk to where the gradient is 0.

    Where the curve is flat a Newton step is far too long: none moves a logit by more than 2.
    """
    slope, bias = begin
    exp, most = math.exp, max(score for score, _, _ in seen)
    for _ in range(_MAX_STEPS):
        # Of a concave function, by its first and second derivatives.
        d_slope = _RIDGE * (prior.slope - slope) if has_slope else 0.0
        d_bias = _RIDGE * (prior.bias - bias)
        h_slope = h_bias = _RIDGE
        h_both = 0.0
        for score, num, num_kept in seen:
            logit = slope * score + bias
            p = 1.0 / (1.0 + exp(-logit)) if logit > -_MAX_LOGIT else 0.0
            error = num_kept - num * p
            weight = num * p * (1.0 - p)
            d_bias += error
            h_bias += weight
            if has_slope:
                d_slope += error * score
                h_both += weight * score
                h_slope += weight * score * score
        determinant = h_slope * h_bias - h_both * h_both
        by_slope = (h_bias * d_slope - h_both * d_bias) / determinant
        by_bias = (h_slope * d_bias - h_both * d_slope) / determinant
        size = max(abs(by_bias), abs(by_slope * most + by_bias))
        damping = _MOST_STEP / size if size > _MOST_STEP else 1.0
        slope += damping * by_slope
        bias += damping * by_bias
        if size < _PRECISION:
            break
    return Line(slope, bias)
