"""Learns the duration of steps by their size. Pure."""

from __future__ import annotations

_WEIGHT = 0.1
"""Weight of a new measurement in a mean."""


class Durations:
    """A moving mean per power of two of the size, and a line through the means.

    A size counts tokens or rows; what it counts is the owner's business.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, float]] = {}
        """By bit length of the size: mean size, mean duration in ns."""

    def observe(self, size: int, duration_ns: float) -> None:
        """Learn from a step of this size."""
        if size <= 0:
            return
        known = self._means.get(size.bit_length())
        if known is None:
            self._means[size.bit_length()] = float(size), float(duration_ns)
            return
        mean_size, mean_ns = known
        self._means[size.bit_length()] = (
            mean_size + _WEIGHT * (size - mean_size),
            mean_ns + _WEIGHT * (duration_ns - mean_ns),
        )

    def estimate(self, size: int) -> float | None:
        """Duration of a step of this size in ns, or None while nothing is known.

        A larger step never takes less than a smaller one. Beyond the largest step that was seen,
        the duration grows with the size; below the smallest it stays.
        """
        below: tuple[float, float] | None = None
        for key in sorted(self._means):
            mean_size, mean_ns = self._means[key]
            if below is not None:
                mean_ns = max(mean_ns, below[1])
            if size <= mean_size:
                if below is None:
                    return mean_ns
                share = (size - below[0]) / (mean_size - below[0])
                return below[1] + share * (mean_ns - below[1])
            below = mean_size, mean_ns
        return None if below is None else below[1] * size / below[0]
