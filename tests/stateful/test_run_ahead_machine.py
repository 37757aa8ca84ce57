"""Two drafters are told the same, and one of them draws ahead: they send the same bytes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.packets.packet import PacketLayout
from minedraft.plans import DraftPlan, Score, StepTiming, Stop
from minedraft.types import RowId, RowParams
from tests.draft_world import Drafter, opened, row
from tests.fake_runner import VOCAB, continuation

TOKEN = st.integers(0, VOCAB - 1)
INDEX = st.integers(0, 99)
PROMPTS = st.sampled_from(([1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8], [7]))
"""They begin alike, so that rows share blocks."""
LAYOUT = PacketLayout(8, 8, 4)


class RunAheadMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        num_blocks=st.sampled_from((64, 14, 9, 6)),
        budget=st.sampled_from((2048, 7)),
        block_size=st.sampled_from((4, 1, 3)),
        limit=st.sampled_from((None, 1, 9)),
        q_width=st.sampled_from((0, 0, 4)),
        poison=st.sampled_from(((), (29,))),
    )
    def start(self, num_blocks, budget, block_size, limit, q_width, poison):
        options = {
            "num_blocks": num_blocks,
            "block_size": block_size,
            "max_catch_up_tokens": budget,
            "q_width": q_width,
            "poison": poison,
        }
        self.plain, self.ahead = Drafter(**options), Drafter(**options, run_ahead=limit)
        self.committed: dict[int, list[int]] = {}
        self.params: dict[int, RowParams] = {}
        self.known: dict[int, int] = {}
        self.next_id = self.num_steps = 1
        self.last: DraftPlan | None = None

    @precondition(lambda self: len(self.committed) < 4)
    @rule(prompt=PROMPTS, temperature=st.sampled_from((0.0, 0.0, 20.0)))
    def arrive(self, prompt, temperature):
        self.committed[self.next_id] = list(prompt)
        self.params[self.next_id] = RowParams(temperature=temperature, seed=self.next_id)
        self.next_id += 1

    @precondition(lambda self: self.committed)
    @rule(index=INDEX, accepted=st.integers(0, 10), token=st.none() | TOKEN)
    def commit(self, index, accepted, token):
        """Some of what is drawn is right, then the target says something else, or nothing."""
        row_id = list(self.committed)[index % len(self.committed)]
        history = self.committed[row_id]
        if len(history) >= 50:
            return
        item = self.ahead.engine.ahead._items.get(RowId(row_id))
        drawn = continuation(history, accepted)
        if item is not None and item.planned.base_len == len(history):
            drawn = item.drafts[:accepted]
        history += [*drawn, *([] if token is None else [token])]

    @precondition(lambda self: self.committed)
    @rule(index=INDEX)
    def end(self, index):
        """It finishes, or is aborted or preempted."""
        row_id = list(self.committed)[index % len(self.committed)]
        del self.committed[row_id]
        if self.known.pop(row_id, None) is not None:
            self.tell(DraftPlan(0, 0, 7, closes=(RowId(row_id),), may_run_ahead=index % 2 == 0))

    @precondition(lambda self: self.known)
    @rule(index=INDEX)
    def open_anew(self, index):
        """The next plan opens it again under the same id, as after a preemption."""
        self.known.pop(list(self.known)[index % len(self.known)])

    @rule(num_passes=st.integers(1, 12))
    def idle(self, num_passes):
        """No plan comes for a while."""
        for _ in range(num_passes):
            if self.ahead.engine.ahead.has_work:
                num_calls = len(self.ahead.runner.calls)
                self.ahead.engine.run_ahead()
                assert len(self.ahead.runner.calls) <= num_calls + 1, "one pass at a time"

    @precondition(lambda self: self.committed)
    @rule(
        ks=st.lists(st.integers(0, 5), min_size=4, max_size=4),
        skip=INDEX,
        may_run_ahead=st.sampled_from((True, True, True, False)),
        is_trial=st.sampled_from((False,) * 9 + (True,)),
        score=st.sampled_from((Score.NONE, Score.MARGIN, Score.MARGIN, Score.SURPRISAL)),
        below=st.sampled_from((None, None, 0.5, 0.99)),
    )
    def step(self, ks, skip, may_run_ahead, is_trial, score, below):
        rows, opens = [], []
        for row_id, k in zip(list(self.committed), ks, strict=False):
            history = self.committed[row_id]
            if len(self.committed) > 1 and skip % 5 == row_id % 5:
                continue
            if row_id not in self.known:
                opens.append(opened(row_id, history, params=self.params[row_id]))
                self.known[row_id] = len(history)
            first = max(self.known[row_id] - skip % 3, 1)
            rows.append(row(row_id, len(history), history[first:], k))
            self.known[row_id] = len(history)
        if not rows:
            return
        self.last = DraftPlan(
            self.num_steps,
            0,
            7,
            tuple(rows),
            tuple(opens),
            is_trial=is_trial,
            score=score,
            stop=None if below is None or score is Score.NONE else Stop(below),
            may_run_ahead=may_run_ahead,
        )
        self.num_steps += 1
        self.tell(self.last)

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self):
        """The same plan again, as after a lost answer."""
        if all(
            len(self.committed.get(planned.row_id, ())) == planned.base_len
            and planned.row_id in self.known
            for planned in self.last.rows
        ):
            self.tell(replace(self.last, opens=()))

    def tell(self, plan):
        for drafter in (self.plain, self.ahead):
            drafter.packets.clear()
        expected, result = self.plain.run(plan), self.ahead.run(plan)
        assert [LAYOUT.encode(packet).tobytes() for packet in self.ahead.packets] == [
            LAYOUT.encode(packet).tobytes() for packet in self.plain.packets
        ]
        if result is not None:
            assert 0 <= result.num_ahead_tokens <= result.num_draft_tokens
            assert result.num_catch_up_tokens <= expected.num_catch_up_tokens
            assert replace(
                result,
                timing=StepTiming(),
                num_catch_up_tokens=expected.num_catch_up_tokens,
                num_ahead_tokens=0,
            ) == replace(expected, timing=StepTiming())

    @invariant()
    def what_a_row_has_is_the_same(self):
        if not hasattr(self, "plain"):
            return
        plain, ahead = self.plain.engine.rows, self.ahead.engine.rows
        assert plain._rows.keys() == ahead._rows.keys()
        num_ahead = 0
        for row_id, mine in plain._rows.items():
            other = ahead._rows[row_id]
            assert (mine.cached, mine.num_agreed, mine.num_published) == (
                other.cached,
                other.num_agreed,
                other.num_published,
            )
            assert (len(mine.block_ids), mine.parked_at) == (len(other.block_ids), other.parked_at)
            num_ahead += len(other.ahead_block_ids or ())
        assert ahead.num_blocks_used == plain.num_blocks_used + num_ahead, "no block leaks"
        assert ahead.num_blocks_cached == plain.num_blocks_cached
        assert ahead._blocks.num_evictions == plain._blocks.num_evictions
        assert ahead.num_hit_tokens == plain.num_hit_tokens
        tables = [[*each.block_ids, *(each.ahead_block_ids or ())] for each in ahead._rows.values()]
        ahead._blocks.check(tables, [each.num_published for each in ahead._rows.values()])

    def teardown(self):
        if hasattr(self, "plain"):
            self.tell(DraftPlan(0, 0, 7, closes=tuple(map(RowId, self.known))))
            known = list(self.ahead.engine.rows._rows)
            self.tell(DraftPlan(0, 0, 7, closes=tuple(known)))
            assert self.ahead.engine.rows.num_blocks_used == 0
            assert not self.ahead.engine.ahead.has_work


TestRunAheadMachine = RunAheadMachine.TestCase
TestRunAheadMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
