"""What a scored draw costs over a plain one: CPU time, in turns, for both makers. Prints a table.

.venv/bin/python benchmarks/scored_draw.py [--json OUT] [--rounds N]

Vocabulary 49,152, one thread. Peaked logits are Zipf-like, with nuclei (p = 0.95) of 1 to 400
tokens, as text has them; flat ones are normal noise. The target is 1.3 for margins; a surprisal
needs the mass of the whole row, which a plain draw without top-p never looks at.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sampling import VOCAB, flat_logits, synthetic_logits

from minedraft.model.kernels import select
from minedraft.model.sampling import Position, SamplingRow, draw
from minedraft.model.scored_draw import draw_scored
from minedraft.types import RowParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROWS = (4, 40)
CASES = {
    "greedy": {"temperature": 0.0},
    "T 1": {"temperature": 1.0},
    "T 0.8": {"temperature": 0.8},
    "T 0.8, top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "T 0.8, top-p 0.5": {"temperature": 0.8, "top_p": 0.5},
    "T 0.8, top-k 50": {"temperature": 0.8, "top_k": 50},
}
LIMIT = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    peaked = synthetic_logits()
    logits = {"peaked": peaked, "flat": flat_logits(peaked)}
    print(f"vocabulary {VOCAB}, {peaked.dtype}, {args.rounds} rounds; CPU time over a plain draw")
    figures = [
        measured(maker, kind, name, every[:rows], args.rounds)
        for maker in ("c", "torch")
        for kind, every in logits.items()
        for name in CASES
        for rows in ROWS
    ]
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def measured(maker: str, kind: str, name: str, logits: Tensor, rounds: int) -> dict[str, object]:
    """Time one case, and print it."""
    kernel = select(maker, torch.float32, 1).draw
    positions = [
        Position(SamplingRow(RowParams(seed=i, **CASES[name]), (1, 2, 3)))  # type: ignore[arg-type]
        for i in range(len(logits))
    ]
    plain, margin, surprisal = in_turns(
        rounds,
        lambda: draw(logits, positions, kernel),
        lambda: draw_scored(logits, positions, kernel),
        lambda: draw_scored(logits, positions, kernel, is_surprisal=True),
    )
    per_row = plain / len(logits) * 1e6
    verdict = "" if margin / plain <= LIMIT else f"over {LIMIT}"
    print(
        f"{maker:6s}{kind:8s}{name:20s}{len(logits):3d} rows {per_row:8.1f} us per row  "
        f"margin {margin / plain:5.2f}  surprisal {surprisal / plain:5.2f} {verdict}"
    )
    return {
        "maker": maker,
        "logits": kind,
        "case": name,
        "rows": len(logits),
        "plain_us": per_row,
        "margin": margin / plain,
        "surprisal": surprisal / plain,
    }


def in_turns(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Median CPU seconds of each call, one turn each per round."""
    times: list[list[float]] = [[] for _ in calls]
    for turn in range(-2, rounds):
        for call, own in zip(calls, times, strict=True):
            start = time.thread_time()
            call()
            if turn >= 0:
                own.append(time.thread_time() - start)
    return [statistics.median(own) for own in times]


if __name__ == "__main__":
    main()
