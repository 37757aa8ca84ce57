"""What speculation costs in a pool that is too small: preemptions, steps, tokens fed. A simulation.

A pure core and a verifier that keeps each draft with one probability; no workers, no time. Requests
always wait, so both batches are full. The pool holds a share of what a full house needs.

    python benchmarks/preemptions.py
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from typing import TYPE_CHECKING

from minedraft.plans import RowResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, ModelInfo, RequestId, RowParams

if TYPE_CHECKING:
    from minedraft.plans import VerifyPlan

BATCH, BLOCK, REQUESTS, ACCEPTANCE = 16, 16, 300, 0.7
LENGTHS = (50, 150)
"""Shortest and longest prompt, and output."""


def keep(request: Request, row: RowResult) -> Kept:
    num_output = len(request.output_token_ids) + len(row.token_ids)
    return Kept(len(row.token_ids), "length" if num_output >= request.max_tokens else None)


def verify(plan: VerifyPlan, rng: random.Random) -> VerifyResult:
    rows = []
    for row in plan.rows:
        accepted, k = 0, row.num_draft_tokens
        while accepted < k and rng.random() < ACCEPTANCE:
            accepted += 1
        num_tokens = accepted + 1 if row.num_computed + row.num_feed == row.base_len else 0
        rows.append(RowResult(row.row_id, row.base_len, (1,) * num_tokens, k, accepted))
    return VerifyResult(plan.step_id, plan.batch, tuple(rows), StepTiming())


def simulate(k: int, share: float, seed: int) -> tuple[int, int, int]:
    """Serve all requests; return preemptions, steps, and committed tokens fed."""
    rng = random.Random(seed)
    jobs = [(rng.randint(*LENGTHS), rng.randint(*LENGTHS)) for _ in range(REQUESTS)]
    mean_blocks = sum(-(-sum(job) // BLOCK) for job in jobs) / REQUESTS
    num_blocks = int(mean_blocks * 2 * BATCH * share)
    core = Core(Mode(2, BATCH, k), max_waiting=REQUESTS)
    core.verifier_up(
        ModelInfo("t", 50, 4096, "f", "float32", block_size=BLOCK, num_blocks=num_blocks)
    )
    core.serve(DraftSource(1, ModelInfo("d", 50, 4096, "f", "float32", drafter_kind="model")))
    for i, (num_prompt, max_tokens) in enumerate(jobs):
        core.submit(Request(RequestId(f"r{i}"), (1,) * num_prompt, RowParams(), max_tokens))
    sent: deque[VerifyPlan] = deque()
    num_steps = num_fed = 0
    while core.requests:
        sent += [plan for _, plan in core.plan() if plan.rows]
        plan = sent.popleft()
        num_steps += 1
        num_fed += sum(row.num_feed for row in plan.rows)
        core.apply(verify(plan, rng), keep)
    return core.counters.num_preemptions, num_steps, num_fed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    print(f"mean of {args.seeds} runs of {REQUESTS} requests, 2 batches of {BATCH}")
    for share in (0.6, 0.8, 1.2):
        for k in (0, 4):
            runs = [simulate(k, share, seed) for seed in range(args.seeds)]
            means = [sum(column) / args.seeds for column in zip(*runs, strict=True)]
            print(
                f"pool for {share:.0%}, k = {k}: {means[0]:.1f} preemptions, "
                f"{means[1]:.0f} steps, {means[2]:.0f} committed tokens fed"
            )


if __name__ == "__main__":
    main()
