"""What changes with the drafter, the batch size m, and the samples per prompt n. Simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paper_checks.pairs import KS, PAIRS, PROMPT, M, throughput

if TYPE_CHECKING:
    from collections.abc import Callable

CARD = "A100"
PAIR = "Qwen3-32B / 1.7B"
SIZES = (8, 16, 32, 64)
SAMPLES = (1, 2, 3)
BRIEF = 32
"""Prompt tokens by m: else a batch of 128 is never full, since its first ones end before."""
SHORT = (2, 3)
"""The k that are best for this pair at any m; the others are left out to be quick."""


def measure(told: Callable[[str], None] = print) -> dict[str, Any]:
    told("ablations: drafters")
    drafters = {
        name: {
            str(k): {
                "psd": throughput(name, CARD, 2, M, k),
                "sd": throughput(name, CARD, 1, M, k),
                "sd_2m": throughput(name, CARD, 1, 2 * M, k),
            }
            for k in KS
        }
        for name in PAIRS
        if name.startswith("Qwen3")
    }
    told("ablations: m")
    sizes = {
        str(m): {
            "batch": max(_over(m, m, k, prompt=BRIEF) for k in SHORT),
            "concurrency": max(_over(m, 2 * m, k, prompt=BRIEF) for k in SHORT),
        }
        for m in SIZES
    }
    told("ablations: n")
    samples = {str(n): max(_over(M, M, k, n) for k in SHORT) for n in SAMPLES}
    return {"card": CARD, "pair": PAIR, "drafters": drafters, "m": sizes, "n": samples}


def _over(m: int, other: int, k: int, n: int = 1, prompt: int = PROMPT) -> float:
    rotating = throughput(PAIR, CARD, 2, m, k, n=n, prompt=prompt)
    return rotating / throughput(PAIR, CARD, 1, other, k, n=n, prompt=prompt)
