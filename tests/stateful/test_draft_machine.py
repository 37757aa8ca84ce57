"""A drafter that is told anything, in any order, and repeated: its drafts are right or missing."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.plans import DraftPlan
from minedraft.types import RowId
from tests.draft_world import Drafter, opened, row
from tests.fake_runner import CONTEXT, VOCAB, continuation

TOKEN = st.integers(0, VOCAB - 1)
INDEX = st.integers(0, 99)


class DraftMachine(RuleBasedStateMachine):
    """Drafts are the pure continuation of the committed tokens or there are none."""

    @initialize(
        num_blocks=st.sampled_from((64, 12, 6)),
        budget=st.sampled_from((2048, 7)),
        block_size=st.sampled_from((4, 1, 3)),
    )
    def start(self, num_blocks, budget, block_size):
        self.drafter = Drafter(
            num_blocks=num_blocks, block_size=block_size, max_catch_up_tokens=budget
        )
        self.is_roomy = num_blocks == 64 and block_size == 4 and budget > 7
        self.has_budget = budget < CONTEXT
        self.committed: dict[int, list[int]] = {}
        self.known: dict[int, int] = {}
        self.next_id = 1
        self.last: DraftPlan | None = None

    @precondition(lambda self: len(self.committed) < 4)
    @rule(prompt=st.lists(TOKEN, min_size=1, max_size=12))
    def arrive(self, prompt):
        self.committed[self.next_id] = prompt
        self.next_id += 1

    @precondition(lambda self: self.committed)
    @rule(index=INDEX, accepted=st.integers(0, 5), token=TOKEN)
    def commit(self, index, accepted, token):
        """Some drafts are right, then the target says something else."""
        history = self.committed[list(self.committed)[index % len(self.committed)]]
        if len(history) < 50:
            history += [*continuation(history, accepted), token]

    @precondition(lambda self: self.committed)
    @rule(index=INDEX)
    def end(self, index):
        row_id = list(self.committed)[index % len(self.committed)]
        del self.committed[row_id]
        if self.known.pop(row_id, None) is not None:
            self.drafter.step(closes=[RowId(row_id)])

    @precondition(lambda self: self.committed)
    @rule(
        ks=st.lists(st.integers(0, 5), min_size=4, max_size=4),
        skip=INDEX,
        repeats=st.integers(0, 2),
    )
    def step(self, ks, skip, repeats):
        rows, opens = [], []
        for row_id, k in zip(list(self.committed), ks, strict=False):
            history = self.committed[row_id]
            if len(self.committed) > 1 and skip % 5 == row_id % 5:
                continue
            if row_id not in self.known:
                opens.append(opened(row_id, history))
                self.known[row_id] = len(history)
            first = max(self.known[row_id] - repeats, 1)
            rows.append(row(row_id, len(history), history[first:], k))
            self.known[row_id] = len(history)
        if not rows:
            return
        self.drafter.num_steps += 1
        self.last = DraftPlan(self.drafter.num_steps, 0, 7, tuple(rows), tuple(opens))
        self._check(self.last)

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self):
        """The same plan again, as after a lost answer."""
        if all(
            len(self.committed.get(planned.row_id, ())) == planned.base_len
            for planned in self.last.rows
        ):
            self._check(replace(self.last, opens=()))

    def must_draft(self, planned):
        """There is room for everybody, or for this row, which is alone."""
        runner = self.drafter.runner
        fits = planned.base_len + 5 <= runner.num_blocks * runner.block_size
        return self.is_roomy or (len(self.known) == 1 and fits and not self.has_budget)

    def _check(self, plan):
        self.drafter.packets.clear()
        result = self.drafter.run(plan)
        asked = [planned for planned in plan.rows if planned.num_draft_tokens]
        sent = {r.row_id: r for packet in self.drafter.packets for r in packet.rows}
        assert set(sent) == {planned.row_id for planned in asked}
        for planned in asked:
            drafts = list(sent[planned.row_id].token_ids)
            assert sent[planned.row_id].base_len == planned.base_len
            want = continuation(self.committed[planned.row_id], planned.num_draft_tokens)
            assert drafts == want or (drafts == [] and not self.must_draft(planned))
        assert result.num_draft_tokens == sum(len(r.token_ids) for r in sent.values())
        assert result.num_behind == 0 or not self.is_roomy

    @invariant()
    def rows_are_those_that_are_open(self):
        if hasattr(self, "drafter"):
            assert self.drafter.engine.rows.num_rows == len(self.known)

    def teardown(self):
        if hasattr(self, "drafter"):
            self.drafter.step(closes=[RowId(row_id) for row_id in self.known])
            assert self.drafter.engine.rows.num_blocks_used == 0


TestDraftMachine = DraftMachine.TestCase
TestDraftMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_the_context_of_the_fake_is_long_enough_for_the_machine():
    assert CONTEXT >= 50 + 6 + 6 + 12
