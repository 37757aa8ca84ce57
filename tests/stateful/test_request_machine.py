"""A request under any order of events equals a list of tokens and a table of phases."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minedraft.errors import StateError
from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.types import RequestId, RowId, RowParams

# Written out by hand, apart from the table under test: event -> {phase: next phase}.
ADMITTED = {Phase.PREFILLING, Phase.READY, Phase.DRAFTING, Phase.DRAFTED, Phase.VERIFYING}
IN_A_STEP = {Phase.DRAFTING, Phase.DRAFTED, Phase.VERIFYING}
WANT = {
    Event.ADMIT: {Phase.WAITING: Phase.PREFILLING},
    Event.PREFILLED: {Phase.PREFILLING: Phase.READY},
    Event.DRAFT: {Phase.READY: Phase.DRAFTING},
    Event.DRAFTS_IN: {Phase.DRAFTING: Phase.DRAFTED},
    Event.VERIFY: {Phase.READY: Phase.VERIFYING, Phase.DRAFTED: Phase.VERIFYING},
    Event.COMMIT: dict.fromkeys(IN_A_STEP, Phase.READY),
    Event.PREEMPT: dict.fromkeys(ADMITTED, Phase.WAITING),
    Event.FINISH: dict.fromkeys({Phase.WAITING, *ADMITTED}, Phase.FINISHED),
}
TOKENS = st.lists(st.integers(0, 9), min_size=1, max_size=5)


class RequestMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(prompt=TOKENS, max_tokens=st.integers(1, 9))
    def start(self, prompt, max_tokens):
        self.request = Request(RequestId("r"), tuple(prompt), RowParams(), max_tokens)
        self.phase = Phase.WAITING
        self.tokens = list(prompt)
        self.num_computed = 0

    @rule(event=st.sampled_from(list(Event)))
    def happens(self, event):
        want = WANT[event].get(self.phase)
        if want is None:
            with pytest.raises(StateError, match=f"r: {event.name} is not .* in {self.phase.name}"):
                self.request.advance(event)
        else:
            self.request.advance(event)
            self.phase = want

    @rule(tokens=TOKENS)
    def commit(self, tokens):
        if self.phase is Phase.PREFILLING or self.phase in IN_A_STEP:
            self.request.commit(tokens)
            self.tokens += tokens
            self.num_computed = len(self.tokens) - 1
            self.phase = Phase.READY
        else:
            with pytest.raises(StateError):
                self.request.commit(tokens)

    @rule(row_id=st.integers(1, 99))
    def lose_the_workers(self, row_id):
        self.request.row_id = RowId(row_id)
        self.request.block_ids = [1]
        self.request.reset_worker_state()
        self.num_computed = 0

    @invariant()
    def equals_the_model(self):
        request = self.request
        assert request.phase is self.phase
        assert request.is_finished == (self.phase is Phase.FINISHED)
        assert request.num_tokens == len(self.tokens)
        assert [list(request.tail(i)) for i in range(len(self.tokens) + 1)] == [
            self.tokens[i:] for i in range(len(self.tokens) + 1)
        ]
        assert request.num_computed == self.num_computed
        assert (request.row_id, request.block_ids) == (0, [])


TestRequestMachine = RequestMachine.TestCase
TestRequestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
