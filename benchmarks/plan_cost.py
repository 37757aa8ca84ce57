"""Planning and committing of this commit against another commit's, in turns: CPU time per row.

Two processes, one burst of steps each in turn, so that a busy machine slows both alike. Each has a
pure core, without workers, wire or text: it plans the steps of 2 batches of 32 requests with k
drafts, answers them as a verifier would, and commits. Only the core's time counts.

    git archive COMMIT | tar -x -C DIR
    python benchmarks/plan_cost.py DIR [--json OUT]
    python benchmarks/plan_cost.py . --policy wcs    # over `fixed`, both of this checkout
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from turns import HERE, Comparison, Peer, compare, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.plans import DraftPlan, DraftRowResult, RowResult, VerifyPlan, VerifyResult
    from minedraft.services.coordinator.core.outcome import Kept
    from minedraft.services.coordinator.core.request import Request

BATCHES, ROWS, K, ACCEPTANCE = 2, 32, 4, 0.7
PROMPT, OUTPUT, BLOCK = 100, 200, 16


class Bench:
    """A core under steady load, and how long it takes.

    Args:
        num_blocks: KV blocks of the pool.
        num_rows: Requests per batch.
        policy: Its name; empty: a commit before policies had names.
    """

    def __init__(self, num_blocks: int, num_rows: int, policy: str = "") -> None:
        from minedraft.services.coordinator.core.core import Core
        from minedraft.types import Mode, ModelInfo

        self.num_requests = BATCHES * num_rows
        mode = Mode(BATCHES, num_rows, K)
        self.core = Core(replace(mode, policy=policy) if policy else mode)
        info = ModelInfo("t", 1000, 4096, "f", "float32", block_size=BLOCK, num_blocks=num_blocks)
        self.core.verifier_up(info)
        draft = ModelInfo("d", 1000, 4096, "f", "float32", drafter_kind="model")
        if hasattr(self.core, "drafter_up"):  # a commit before draft sources
            self.core.drafter_up(draft, 1)
        else:
            from minedraft.services.coordinator.core.draft_source import DraftSource

            self.core.serve(DraftSource(1, draft))
        self.rng = random.Random(0)
        self.sent: deque[VerifyPlan] = deque()
        self.num_submitted = self.num_rows = 0
        self.made: dict[int, tuple[int, int, int]] = {}
        """By row: where it drafted last, how much, and how much of it stood."""
        self.seconds = 0.0
        self.commit: Callable[[VerifyResult], None] = (
            self._apply if hasattr(self.core, "apply") else self._commit
        )

    def burst(self, num_steps: int) -> float:
        """Run some steps; return microseconds of CPU time per row."""
        self.num_rows, self.seconds = 0, 0.0
        for _ in range(num_steps):
            self._step()
        return self.seconds / self.num_rows * 1e6

    def _step(self) -> None:
        from minedraft.plans import DraftResult, StepTiming
        from minedraft.services.coordinator.core.request import Request
        from minedraft.types import RequestId, RowParams

        core = self.core
        while len(core.requests) < self.num_requests:
            self.num_submitted += 1
            length = self.rng.randint(OUTPUT // 2, OUTPUT)
            name = RequestId(f"r{self.num_submitted}")
            core.submit(Request(name, tuple(range(PROMPT)), RowParams(), length))
        begin = time.process_time()
        plans = list(core.plan())
        self.seconds += time.process_time() - begin
        timing = StepTiming(total_ns=10**6)
        notes = []
        for draft, verify in plans:
            if draft is not None and draft.rows:
                num_rows = sum(row.num_draft_tokens > 0 for row in draft.rows)
                num_drafts = sum(row.num_draft_tokens for row in draft.rows)
                note = DraftResult(
                    draft.step_id, draft.batch, num_drafts, num_rows, timing, epoch=1
                )
                notes.append(replace(note, rows=self._scored(draft)))
            if verify.rows:
                self.sent.append(verify)
        result = self._verify(self.sent.popleft())
        self.num_rows += len(result.rows)
        begin = time.process_time()
        for note in notes:
            core.on_draft_result(note)
        self.commit(result)
        self.seconds += time.process_time() - begin

    def _scored(self, draft: DraftPlan) -> tuple[DraftRowResult, ...]:
        """What a drafter says of rows whose scores are asked for."""
        if not getattr(draft, "score", 0):
            return ()
        from minedraft.plans import DraftRowResult

        return tuple(
            DraftRowResult(
                row.row_id,
                row.base_len,
                False,
                tuple(4 * self.rng.random() for _ in range(row.num_draft_tokens)),
                *self._judged(row.row_id),
            )
            for row in draft.rows
        )

    def _judged(self, row_id: int) -> tuple[int, int, int]:
        base_len, num_drafts, num_accepted = self.made.pop(row_id, (0, 0, 0))
        return base_len, num_accepted, min(num_accepted + 1, num_drafts)

    def _verify(self, plan: VerifyPlan) -> VerifyResult:
        from minedraft.plans import RowResult, StepTiming, VerifyResult

        rows = []
        for row in plan.rows:
            if row.num_computed + row.num_feed < row.base_len:
                rows.append(RowResult(row.row_id, row.base_len, ()))
                continue
            accepted = 0
            while accepted < row.num_draft_tokens and self.rng.random() < ACCEPTANCE:
                accepted += 1
            if row.num_draft_tokens:
                self.made[row.row_id] = row.base_len, row.num_draft_tokens, accepted
            tokens = tuple(range(accepted + 1))
            rows.append(RowResult(row.row_id, row.base_len, tokens, row.num_draft_tokens, accepted))
        return VerifyResult(plan.step_id, plan.batch, tuple(rows), StepTiming(total_ns=10**6))

    def _apply(self, result: VerifyResult) -> None:
        from minedraft.services.coordinator.core.outcome import Kept

        def keep(request: Request, row: RowResult) -> Kept:
            is_last = len(request.output_token_ids) + len(row.token_ids) >= request.max_tokens
            return Kept(len(row.token_ids), "length" if is_last else None)

        self.core.apply(result, keep)

    def _commit(self, result: VerifyResult) -> None:
        """As drivers did before `apply`."""
        core = self.core
        for request, row in core.on_verify_result(result):
            core.commit(request, row.token_ids)
            if len(request.output_token_ids) >= request.max_tokens:
                core.finish(request.request_id, "length")


def compare_with(
    other: Path, num_blocks: int, num_rows: int, rounds: int, policy: str = ""
) -> Comparison:
    """Microseconds of CPU time per row, this checkout over the other one.

    Args:
        other: Root of the other checkout.
        num_blocks: KV blocks of the pool.
        num_rows: Requests per batch.
        rounds: Turns of each.
        policy: Of this checkout, then the other one has `fixed`; empty: of neither.
    """
    options = ("--serve", str(num_blocks), "--rows", str(num_rows), str(HERE))
    of_base = (*options, "--policy", "fixed") if policy else options
    of_new = (*options, "--policy", policy) if policy else options
    with Peer(__file__, *of_base, root=other) as base, Peer(__file__, *of_new) as new:
        return compare(base, new, rounds=rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--rows", type=int, default=ROWS, help="requests per batch")
    parser.add_argument("--num-blocks", type=int, help="default: twice what the outputs need")
    parser.add_argument("--policy", default="", help="of this checkout, over fixed of the other")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        bench = Bench(args.serve, args.rows, args.policy)
        serve(lambda: bench.burst(50))
        return
    num_blocks = args.num_blocks or 2 * BATCHES * args.rows * OUTPUT // BLOCK
    result = compare_with(args.other.resolve(), num_blocks, args.rows, args.rounds, args.policy)
    print(
        f"2 x {args.rows}, pool of {num_blocks} blocks, us per row, this over the other: {result}"
    )
    if args.json:
        figures = {"num_rows": args.rows, "num_blocks": num_blocks, **result.to_json()}
        args.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
