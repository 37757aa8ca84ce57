"""The nine figures of MineDraft's tables over plain sequential speculation, beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paper_checks.pairs import CARDS, KS, PAIRS, M, latency, throughput

if TYPE_CHECKING:
    from collections.abc import Callable

GPUS = 5 / 4
"""The rotation has a fifth card; sequential speculation drafts on one of the four."""
THEIRS: dict[str, tuple[str, float]] = {
    "throughput, Qwen3-32B / 0.6B": ("Arena", 70.32),
    "throughput, Qwen3-32B / 1.7B": ("Tough", 75.68),
    "throughput, Qwen3-32B / 4B": ("ShareGPT", 65.64),
    "throughput, Llama-3.3-70B-AWQ / 8B": ("ShareGPT", 37.06),
    "throughput, Vicuna-33B / EAGLE": ("ShareGPT", 22.09),
    "latency, Qwen3-32B / 1.7B": ("Tough", -39.51),
    "throughput per GPU, best": ("any", 40.55),
    "latency per GPU, best": ("any", -24.38),
    "latency per GPU at k = 2, worst": ("Spec-Bench", 2.08),
}
"""By what is compared: the text, and per cent over sequential speculation at the same k; of several
k the best. The paper names no pair for the last three."""
QWENS = [name for name in PAIRS if name.startswith("Qwen3")]


def measure(told: Callable[[str], None] = print) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for card in CARDS:
        told(f"tables: {card}")
        found[card] = {name: _row(name, card) for name in THEIRS}
    return {"theirs": {name: list(each) for name, each in THEIRS.items()}, "ours": found}


def _row(name: str, card: str) -> dict[str, float]:
    """Per cent over sequential speculation: at equal batch, equal concurrency and per GPU."""
    what, _, rest = name.partition(", ")
    if what == "throughput":
        return {
            "batch": max(_faster(rest, card, k, M) for k in KS),
            "concurrency": max(_faster(rest, card, k, 2 * M) for k in KS),
            "gpu": max(_faster(rest, card, k, M, GPUS) for k in KS),
        }
    if what == "latency":
        return {
            "batch": min(_slower(rest, card, k, M) for k in KS),
            "concurrency": min(_slower(rest, card, k, 2 * M) for k in KS),
            "gpu": min(_slower(rest, card, k, M, GPUS) for k in KS),
        }
    if what == "throughput per GPU":
        return {"gpu": max(_faster(pair, card, k, M, GPUS) for pair in QWENS for k in KS)}
    if "k = 2" in name:
        return {"gpu": max(_slower(pair, card, 2, M, GPUS) for pair in PAIRS)}
    return {"gpu": min(_slower(pair, card, k, M, GPUS) for pair in QWENS for k in KS)}


def _faster(pair: str, card: str, k: int, m: int, gpus: float = 1.0) -> float:
    rotating, in_turns = throughput(pair, card, 2, M, k), throughput(pair, card, 1, m, k)
    return (rotating / in_turns / gpus - 1) * 100


def _slower(pair: str, card: str, k: int, m: int, gpus: float = 1.0) -> float:
    rotating, in_turns = latency(pair, card, 2, M, k), latency(pair, card, 1, m, k)
    return (rotating / in_turns * gpus - 1) * 100
