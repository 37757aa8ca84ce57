"""A histogram with fixed buckets. Pure; one observation costs a search and two additions."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

# Those of vLLM, so that boards made for it show the same lines.
TTFT_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""Between tokens of a request."""
REQUEST_S: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
"""Of a whole request, or of one of its phases."""
TOKENS: Final = tuple(float(digit * 10**power) for power in range(7) for digit in (1, 2, 5))[:19]
"""Numbers of tokens: 1, 2, 5, 10 ... 1,000,000."""
# Ours.
ROWS: Final = tuple(float(2**power) for power in range(11))
"""Rows of a step: 1, 2, 4 ... 1024."""
LAG_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Delays of the event loop."""


class Histogram:
    """Counts values by bucket; a bucket holds those up to its bound, the bound included.

    Args:
        bounds: Upper bounds, increasing. Beyond the last one there is a bucket more.
        total: Sum of the values that are counted already.
        counts: Their numbers per bucket; None: there are none.
    """

    __slots__ = ("_counts", "bounds", "total")

    def __init__(
        self, bounds: Sequence[float], total: float = 0.0, counts: Sequence[int] | None = None
    ) -> None:
        self.bounds: Final = bounds
        self.total = total
        """Sum of all values."""
        self._counts = [0] * (len(bounds) + 1) if counts is None else list(counts)

    @property
    def count(self) -> int:
        """Number of all values."""
        return sum(self._counts)

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Return how many values are up to each bound; the last entry is their number."""
        return list(accumulate(self._counts))

    def copy(self) -> Self:
        """Return one that does not change."""
        return type(self)(self.bounds, self.total, self._counts)
