"""A chi-square test against a known distribution, without scipy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def assert_drawn_from(counts: Sequence[float], probabilities: Sequence[float]) -> None:
    """Fail if counts are too far from n * probabilities to be chance (about one in 100,000).

    Cells that expect fewer than five are pooled; a cell of probability 0 must be empty.
    """
    total = sum(counts)
    pooled_count = pooled_expected = 0.0
    statistic, cells = 0.0, 0
    for count, probability in zip(counts, probabilities, strict=True):
        expected = total * probability
        if probability == 0:
            assert count == 0
        elif expected < 5:
            pooled_count += count
            pooled_expected += expected
        else:
            statistic += (count - expected) ** 2 / expected
            cells += 1
    if pooled_expected >= 5:
        statistic += (pooled_count - pooled_expected) ** 2 / pooled_expected
        cells += 1
    assert statistic < _critical(max(1, cells - 1)), (statistic, cells, list(counts))


def _critical(freedom: int) -> float:
    """Upper 1e-5 quantile (Wilson, Hilferty 1931)."""
    z = 4.265
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + z * math.sqrt(spread)) ** 3
