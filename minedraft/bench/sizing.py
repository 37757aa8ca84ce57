"""Chooses how much to measure in a given time, from the measured speed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minedraft.bench.load import Record


@dataclass(frozen=True, slots=True)
class Size:
    """Requests and tokens of each measurement."""

    num_prompts: int
    max_tokens: int
    """Output tokens per prompt."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Wall time of a measurement that uses all its slots."""

    prompt_s: float
    """Seconds per prompt."""
    token_s: float
    """Seconds per output token."""

    def seconds(self, size: Size) -> float:
        """Predict how long a measurement takes."""
        return size.num_prompts * (self.prompt_s + (size.max_tokens - 1) * self.token_s)


def speed_of(records: Sequence[Record], wall_s: float) -> Speed:
    """Derive the speed from a short run in which all requests began together.

    Args:
        records: What became of the requests; at least one.
        wall_s: How long they took together.
    """
    first_s = max(record.ttft_s for record in records)
    num_later = sum(len(record.token_ids) - 1 for record in records)
    return Speed(first_s / len(records), max(wall_s - first_s, 0.0) / max(num_later, 1))


def predict(speeds: Iterable[Speed], size: Size) -> float:
    """Predict the seconds of all measurements, one after the other."""
    return sum(speed.seconds(size) for speed in speeds)


def choose(sizes: Sequence[Size], speeds: Sequence[Speed], budget_s: float) -> Size:
    """Choose the largest size that fits.

    Args:
        sizes: From the smallest that still says something to the largest that is wanted.
        speeds: Of every measurement that will be made; one that is made twice, twice.
        budget_s: Longest they may take together.

    Returns:
        The largest that fits, or the smallest if none does.
    """
    if not sizes:
        raise ConfigError("sizes: none")
    fitting = [size for size in sizes if predict(speeds, size) <= budget_s]
    return fitting[-1] if fitting else sizes[0]
