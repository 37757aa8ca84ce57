"""Predicts the gain of PSD from the durations of a verify step and a draft step. Pure.

V(m) and t(m) are the times of a verify and of a draft step over m rows. SD does them in turns: m
rows per V(m) + t(m). PSD does them side by side for two batches of m: m rows per max(V(m), t(m)).
"""

from __future__ import annotations


def psd_over_sd(verify_ms: float, draft_ms: float) -> float:
    """Predict PSD's throughput over SD's at equal batch: (V + t) / max(V, t).

    Args:
        verify_ms: V(m), measured under SD, where nothing runs beside it.
        draft_ms: t(m), likewise.

    Returns:
        1..2; 0 if nothing was measured.
    """
    longest = max(verify_ms, draft_ms)
    return (verify_ms + draft_ms) / longest if longest else 0.0


def psd_over_sd_2m(
    verify_ms: float, draft_ms: float, verify_2m_ms: float, draft_2m_ms: float
) -> float:
    """Predict PSD's throughput over SD's at equal concurrency: [V(2m) + t(2m)] / [2 max(V, t)].

    Under 1 where V and t hardly grow with the batch: then two batches lose.

    Args:
        verify_ms: V(m) under SD.
        draft_ms: t(m) under SD.
        verify_2m_ms: V(2m) under SD.
        draft_2m_ms: t(2m) under SD.

    Returns:
        The ratio; 0 if nothing was measured.
    """
    longest = max(verify_ms, draft_ms)
    return (verify_2m_ms + draft_2m_ms) / (2 * longest) if longest else 0.0
