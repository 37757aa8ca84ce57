"""A verifier whose drafts come, get lost, are wrong or late: its output is plain decoding."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from minedraft.plans import VerifyPlan
from minedraft.types import RowId
from tests.fake_runner import VOCAB, continuation
from tests.verify_world import Verifier, opened, row

INDEX = st.integers(0, 99)


class VerifyMachine(RuleBasedStateMachine):
    """The output is plain decoding, whatever drafts came, were lost, wrong or repeated."""

    @initialize(block_size=st.sampled_from((4, 1, 3)))
    def start(self, block_size):
        self.verifier = Verifier(num_blocks=200, block_size=block_size)
        self.free = list(range(200))
        self.histories: dict[int, list[int]] = {}
        self.prompts: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.blocks: dict[int, list[int]] = {}
        self.told: dict[int, int] = {}
        self.next_id = 1

    @precondition(lambda self: len(self.histories) < 4)
    @rule(prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9))
    def arrive(self, prompt):
        self._add(list(prompt), len(prompt))

    def _add(self, history, num_prompt):
        row_id, self.next_id = self.next_id, self.next_id + 1
        self.histories[row_id], self.prompts[row_id] = history, num_prompt
        self.done[row_id] = self.told[row_id] = 0
        self.blocks[row_id] = []

    @precondition(lambda self: self.histories)
    @rule(index=INDEX, is_preempted=st.booleans())
    def end_or_preempt(self, index, is_preempted):
        row_id = list(self.histories)[index % len(self.histories)]
        history, num_prompt = self.histories.pop(row_id), self.prompts[row_id]
        self.free += self.blocks[row_id]
        if self.told[row_id]:
            self.verifier.step(closes=[RowId(row_id)])
        if is_preempted:  # another life with the same tokens
            self._add(history, num_prompt)

    @precondition(lambda self: self.histories)
    @rule(
        num_right=st.integers(0, 4),
        k=st.integers(0, 4),
        chunk=st.integers(1, 12),
        came=st.sampled_from(("in time", "not", "stale")),
        repeat=st.booleans(),
    )
    def step(self, num_right, k, chunk, came, repeat):
        rows, opens, drafts = [], [], []
        for row_id, history in self.histories.items():
            if len(history) > 60:
                continue
            length, done = len(history), self.done[row_id]
            feed = min(chunk, length - done)
            row_k = k if done + feed == length else 0
            if not self.told[row_id]:
                num_prompt = self.prompts[row_id]
                opens.append(opened(row_id, history[:num_prompt], history[num_prompt:]))
                self.told[row_id] = length
            table = self.blocks[row_id]
            offset = len(table)
            while len(table) * self.verifier.runner.block_size < done + feed + row_k:
                table.append(self.free.pop(0))
            rows.append(
                row(
                    row_id,
                    length,
                    history[self.told[row_id] :],
                    done=done,
                    feed=feed,
                    k=row_k,
                    blocks=table[offset:],
                    offset=offset,
                )
            )
            self.told[row_id] = length
            right = continuation(history, row_k)
            mixed = [t if i < num_right else (t + 1) % VOCAB for i, t in enumerate(right)]
            if row_k:
                drafts.append((row_id, length - (came == "stale"), tuple(mixed)))
        if not rows:
            return
        self.verifier.num_steps += 1
        plan = VerifyPlan(self.verifier.num_steps, 0, 7, tuple(rows), tuple(opens))
        given = None if came == "not" else drafts
        result = self.verifier.run(plan, given)
        if repeat:
            assert self.verifier.run(replace(plan, opens=()), given).rows == result.rows
        for planned, answer in zip(rows, result.rows, strict=True):
            history = self.histories[planned.row_id]
            self.done[planned.row_id] += planned.num_feed
            if planned.num_computed + planned.num_feed < planned.base_len:
                assert answer.token_ids == ()
                continue
            accepted = min(num_right, planned.num_draft_tokens) if came == "in time" else 0
            assert answer.num_accepted_tokens == accepted
            assert list(answer.token_ids) == continuation(history, accepted + 1)
            history += answer.token_ids
            self.done[planned.row_id] = len(history) - 1

    def teardown(self):
        if hasattr(self, "verifier"):
            assert self.verifier.engine.num_rows == sum(
                bool(self.told[row_id]) for row_id in self.histories
            )


TestVerifyMachine = VerifyMachine.TestCase
TestVerifyMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
