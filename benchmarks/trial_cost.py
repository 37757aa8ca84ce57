"""A trial step over the verify step that it stands for, one thread, in turns: how true trials are.

The verifier's own engine runs both. A trial has a row of one token for each token of the step; the
step has rows with k drafts at a context. CPU time per step, median of the rounds' ratios.

    python benchmarks/trial_cost.py [--dtype bfloat16] [--context 20] [--rounds 9]
"""

from __future__ import annotations

import argparse
import itertools
import os
from typing import TYPE_CHECKING

import torch
from turns import compare

from minedraft.bench.machine import describe, in_words
from minedraft.hub.pairs import ensure_pair
from minedraft.model.loader import load_runner
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.services.coordinator.core import trial_plans
from minedraft.services.coordinator.core.trial_plans import Trial
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.types import Acceptance, RowId, RowParams

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK, NUM_BLOCKS, VOCAB = 16, 1024, 49_000
CASES = ((1, 0), (8, 0), (16, 0), (4, 4), (8, 4), (16, 4))
"""Rows, and drafts per row."""


class Verifier:
    """A verify engine, and numbers for its steps and rows."""

    def __init__(self, model: str, dtype: str) -> None:
        runner = load_runner(model, dtype=dtype, num_blocks=NUM_BLOCKS, block_size=BLOCK)
        self._engine = VerifyEngine(runner, Acceptance.COUPLED)
        self._steps, self._rows = itertools.count(1), itertools.count(1)

    def run(self, plan: VerifyPlan, packet: DraftPacket | None = None) -> float:
        """CPU milliseconds of a plan with rows."""
        result = self._engine.step(plan, packet, plan_ns=0, drafts_ns=None)
        return result.timing.cpu_ns / 1e6 if result is not None else 0.0

    def trial(self, num_tokens: int) -> float:
        """One trial step; its rows are closed again."""
        trial = Trial(verify_rows=num_tokens)
        ids = [RowId(next(self._rows)) for _ in range(num_tokens)]
        opened = trial_plans.opens(trial, ids, VOCAB)
        blocks = list(range(num_tokens))
        ms = self.run(trial_plans.verify_plan(trial, next(self._steps), 0, opened, blocks))
        self.run(VerifyPlan(0, 0, 0, closes=tuple(ids)))
        return ms

    def step(self, num_rows: int, k: int, context: int) -> Callable[[], float]:
        """A step that can be repeated, on rows that hold `context` tokens."""
        ids = [RowId(next(self._rows)) for _ in range(num_rows)]
        num_blocks = -(-(context + k + 1) // BLOCK)
        tables = [tuple(range(i * num_blocks, (i + 1) * num_blocks)) for i in range(num_rows)]
        opens = tuple(
            OpenRow(row, tuple((7 * j + row) % VOCAB for j in range(context)), (), RowParams())
            for row in ids
        )
        rows = [
            VerifyRow(row, context, (), 0, context, 0, table, 0)
            for row, table in zip(ids, tables, strict=True)
        ]
        drafted = tuple(
            DraftedRow(int(row), context, tuple((3 * j + 5) % VOCAB for j in range(k)), ())
            for row in ids
        )

        def once() -> float:
            # Again: blocks are the trials' too.
            prompts = VerifyPlan(next(self._steps), 0, 0, tuple(rows), opens)
            self.run(prompts)
            number = next(self._steps)
            again = tuple(
                VerifyRow(row, context, (), context - 1, 1, k, (), num_blocks) for row in ids
            )
            packet = DraftPacket(1, number, 0, drafted) if k else None
            return self.run(VerifyPlan(number, 0, int(k > 0), again), packet)

        return once


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--context", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(in_words(describe()))
    verifier = Verifier(str(ensure_pair("smollm2").target_dir), args.dtype)
    for num_rows, k in CASES:
        size = num_rows * (k + 1)
        result = compare(
            verifier.step(num_rows, k, args.context),
            lambda size=size: verifier.trial(size),
            rounds=args.rounds,
            warm_up=1,
        )
        print(f"{num_rows} rows, k = {k}: {size} tokens: {result}", flush=True)


if __name__ == "__main__":
    main()
