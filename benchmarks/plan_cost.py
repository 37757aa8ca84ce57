"""Planning and committing of this commit against another commit's, in turns: CPU time per row.

Two processes, one burst of steps each in turn, so that a busy machine slows both alike. Each has a
pure core, without workers, wire or text: it plans the steps of 2 batches of 32 requests with k
drafts, answers them as a verifier would, and commits. Only the core's time counts.

    git archive COMMIT | tar -x -C DIR
    python benchmarks/plan_cost.py DIR [--json OUT]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.plans import RowResult, VerifyPlan, VerifyResult
    from minedraft.services.coordinator.core.outcome import Kept
    from minedraft.services.coordinator.core.request import Request

BATCHES, ROWS, K, ACCEPTANCE = 2, 32, 4, 0.7
PROMPT, OUTPUT, BLOCK = 100, 200, 16
HERE = Path(__file__).resolve().parent.parent


class Bench:
    """A core under steady load, and how long it takes.

    Args:
        num_blocks: KV blocks of the pool.
    """

    def __init__(self, num_blocks: int) -> None:
        from minedraft.services.coordinator.core.core import Core
        from minedraft.types import Mode, ModelInfo

        self.core = Core(Mode(BATCHES, ROWS, K))
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
        while len(core.requests) < BATCHES * ROWS:
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
                notes.append(
                    DraftResult(draft.step_id, draft.batch, K * num_rows, num_rows, timing, epoch=1)
                )
            if verify.rows:
                self.sent.append(verify)
        result = self._verify(self.sent.popleft())
        self.num_rows += len(result.rows)
        begin = time.process_time()
        for note in notes:
            core.on_draft_result(note)
        self.commit(result)
        self.seconds += time.process_time() - begin

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


def serve(num_blocks: int) -> None:
    """Say which tree this is, then run a burst for each line of stdin and say its cost."""
    bench = Bench(num_blocks)
    print(sys.modules["minedraft"].__file__, flush=True)
    for _ in sys.stdin:
        print(bench.burst(50), flush=True)


def start(root: Path, num_blocks: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, "--serve", str(num_blocks), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def ask(process: subprocess.Popen[str]) -> float:
    pipe, answers = process.stdin, process.stdout
    if pipe is None or answers is None:
        raise SystemExit("no pipes")
    pipe.write("\n")
    pipe.flush()
    return float(answers.readline())


def compare(other: Path, num_blocks: int, rounds: int) -> dict[str, object]:
    both = [start(other, num_blocks), start(HERE, num_blocks)]
    try:
        where = [Path((p.stdout or sys.stdin).readline().strip()).parent.parent for p in both]
        if where != [other, HERE]:
            raise SystemExit(f"imported {where}")
        for process in both * 3:
            ask(process)  # warms up
        pairs = []
        for index in range(rounds):
            turn = both if index % 2 else both[::-1]
            times = {id(process): ask(process) for process in turn}
            pairs.append((times[id(both[0])], times[id(both[1])]))
    finally:
        for process in both:
            process.kill()
            process.wait()
    ratios = [new / old for old, new in pairs]
    return {
        "num_blocks": num_blocks,
        "other_us_per_row": statistics.median(old for old, _ in pairs),
        "this_us_per_row": statistics.median(new for _, new in pairs),
        "median_ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--num-blocks", type=int, default=2 * BATCHES * ROWS * OUTPUT // BLOCK)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    result = compare(args.other.resolve(), args.num_blocks, args.rounds)
    print(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
