"""A draft engine over a fake model, and the packets it sent."""

from __future__ import annotations

import time

from minedraft.model.sampling_row import SamplingRow
from minedraft.packets.packet import DraftPacket
from minedraft.plans import DraftPlan, DraftRow, OpenRow
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.services.drafter.proposer import DraftContext, Drafting
from minedraft.services.drafter.rows import Row
from minedraft.types import DebugOptions, RowId, RowParams
from minedraft.worker.stopwatch import Stopwatch
from tests.fake_runner import FakeRunner

GREEDY = RowParams(temperature=0.0)


class Drafter:
    """An engine, and the packets it sent."""

    def __init__(self, kind="model", *, num_blocks=64, block_size=4, poison=(), **options) -> None:
        self.runner = FakeRunner(num_blocks=num_blocks, block_size=block_size, poison=poison)
        self.engine = DraftEngine(self.runner, kind, **options)
        self.packets: list[DraftPacket] = []
        self.num_steps = 0

    def step(self, rows=(), *, opens=(), closes=()):
        self.num_steps += 1
        plan = DraftPlan(self.num_steps, 1, 7, tuple(rows), tuple(opens), tuple(closes))
        return self.run(plan)

    def run(self, plan):
        return self.engine.step(plan, plan_ns=time.perf_counter_ns(), send=self.packets.append)

    def drafts(self, row_id=1):
        """What the last packet says of a row."""
        return next(list(r.token_ids) for r in self.packets[-1].rows if r.row_id == row_id)


def opened(row_id=1, prompt=(1, 2, 3), output=(), params=GREEDY, **more) -> OpenRow:
    return OpenRow(RowId(row_id), tuple(prompt), tuple(output), params, **more)


def row(row_id=1, base_len=3, new=(), k=4) -> DraftRow:
    return DraftRow(RowId(row_id), base_len, tuple(new), k)


def context(q_width=0) -> DraftContext:
    return DraftContext(FakeRunner(), Stopwatch(), q_width)


def drafting(output=(), *, k=4, drafts=(), debug=None) -> Drafting:
    """A row of prompt (1, 2) that is drafted for, with drafts of this step."""
    sampling = SamplingRow(RowParams(seed=5), (1, 2), output)
    planned = DraftRow(RowId(1), sampling.num_tokens, (), k)
    return Drafting(planned, Row(sampling, debug or DebugOptions()), drafts=list(drafts))
