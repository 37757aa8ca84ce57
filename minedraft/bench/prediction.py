"""Predicts the gain of PSD from the durations of a verify step and a draft step. Pure.

V(m) and t(m) are the times of a verify and of a draft step over m rows. SD does them in turns: m
rows per V(m) + t(m). PSD does them side by side for two batches of m: m rows per max(V(m), t(m)).
Both legs share memory and caches, so each is longer beside the other than alone: what SD takes is
the sum of the legs alone, what PSD takes the longer one beside the other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Legs:
    """Durations of the two halves of a step; 0: not measured."""

    verify_ms: float
    """V."""
    draft_ms: float
    """t."""


def psd_over_sd(alone: Legs, beside: Legs, *, num_batches: int = 1) -> float:
    """Predict PSD's throughput over SD's: (V + t) / (num_batches * max(V', t')).

    Args:
        alone: V and t under SD, where nothing runs beside them.
        beside: V' and t' under PSD, where each runs beside the other; of a batch of m.
        num_batches: Batches of m that SD held as one: 1 at equal batch; 2 at equal concurrency,
            where V and t are those of 2m rows. The ratio is then under 1 if V and t hardly grow
            with the batch: two batches lose.

    Returns:
        The ratio; 0 if nothing was measured.
    """
    longest = max(beside.verify_ms, beside.draft_ms)
    if not longest:
        return 0.0
    return (alone.verify_ms + alone.draft_ms) / (num_batches * longest)
