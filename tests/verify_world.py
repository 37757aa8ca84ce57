"""A verify engine over a fake model, and a coordinator's view of its rows' blocks."""

from __future__ import annotations

import time

from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.types import Acceptance, RowId, RowParams
from tests.fake_runner import FakeRunner, continuation

GREEDY = RowParams(temperature=0.0)
PROMPT = (1, 2, 3)


class Verifier:
    """An engine with its pool, and a coordinator's view of the rows' blocks."""

    def __init__(self, *, rule=Acceptance.COUPLED, num_blocks=64, block_size=4, poison=()) -> None:
        self.runner = FakeRunner(num_blocks=num_blocks, block_size=block_size, poison=poison)
        self.engine = VerifyEngine(self.runner, rule)
        self.num_steps = 0

    def step(self, rows=(), *, opens=(), closes=(), drafts=None):
        self.num_steps += 1
        plan = VerifyPlan(self.num_steps, 1, 7, tuple(rows), tuple(opens), tuple(closes))
        return self.run(plan, drafts)

    def run(self, plan, drafts=None):
        packet = None
        if drafts is not None:
            rows = tuple(DraftedRow(*row) for row in drafts)
            packet = DraftPacket(7, plan.step_id, plan.batch, rows)
        return self.engine.step(plan, packet, plan_ns=time.perf_counter_ns(), drafts_ns=None)


def opened(row_id=1, prompt=PROMPT, output=(), params=GREEDY) -> OpenRow:
    return OpenRow(RowId(row_id), tuple(prompt), tuple(output), params)


def row(row_id=1, base_len=3, new=(), *, done=0, feed=3, k=0, blocks=(), offset=0) -> VerifyRow:
    return VerifyRow(RowId(row_id), base_len, tuple(new), done, feed, k, tuple(blocks), offset)


def prefilled(**options) -> Verifier:
    """Row 1 with its prompt in block 0 and four tokens of room in block 1."""
    verifier = Verifier(**options)
    result = verifier.step([row(blocks=(0,))], opens=[opened()])
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 1)
    return verifier


def decode(drafts, *, verifier=None, base_len=4, k=None, drafted_base=4):
    """One step of row 1 with these drafts; its result and the verifier."""
    verifier = verifier or prefilled()
    new = continuation(PROMPT, base_len - 3)
    result = verifier.step(
        [
            row(
                1,
                base_len,
                new,
                done=base_len - 1,
                feed=1,
                k=k or len(drafts),
                blocks=(1, 2),
                offset=1,
            )
        ],
        drafts=[(1, drafted_base, tuple(drafts))],
    )
    return result, verifier
