"""Links, losses, suspicion, warm-ups and swaps in any order, against a plain model of sources.

The model is a list of places and a few sets of numbers; core and its planner are real. After every
event: each source is in the state that the model says, and the plans that go out next name exactly
the sources that the model would have draft.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from minedraft.errors import StateError
from minedraft.plans import DraftResult, DraftRowResult, StepTiming
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource, State
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, RequestId, RowId, RowParams
from tests.worker_doubles import DrafterDouble, VerifierDouble

PICK = st.integers(0, 99)
GONE = RowId(10**6)
"""A row that has ended: only its source is behind, not one of its requests."""
NUM_BATCHES = 3


class SourcesMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(num_requests=st.integers(1, 6))
    def start(self, num_requests):
        self.core = Core(Mode(NUM_BATCHES, 4, 3))
        self.sources: dict[int, DraftSource] = {}
        self.doubles: dict[int, DrafterDouble] = {}
        self.linking: set[int] = set()
        self.warming: dict[int, bool] = {}
        """By number, whether it is warm."""
        self.places: list[int] = []
        self.suspects: set[int] = set()
        self.broken: set[int] = set()
        self.leaving: set[int] = set()
        self.misses: dict[int, int] = {}
        self.owed: dict[int, DraftResult] = {}
        """Answers to warm-up plans that have not arrived."""
        self.notes: list[DraftResult] = []
        """Answers to the other draft plans, in order."""
        self.answered: set[int] = set()
        """Steps in flight of which the source has said that it is done."""
        self.verifier: VerifierDouble | None = None
        self.num_requests = 0
        self.bring_verifier_up()
        for _ in range(num_requests):
            self.submit()
        self.link()
        self.serve(0)

    # -- a source begins --------------------------------------------------------------------

    @precondition(lambda self: len(self.linked) + len(self.linking) < 5)
    @rule()
    def link(self):
        number = len(self.sources) + 1
        self.doubles[number] = DrafterDouble(number)
        self.sources[number] = DraftSource(number, self.doubles[number].info)
        self.linking.add(number)

    @precondition(lambda self: self.linking and self.verifier)
    @rule(pick=PICK)
    def serve(self, pick):
        number = self._pick(self.linking, pick)
        self.core.serve(self.sources[number])
        self.linking.discard(number)
        self.places.append(number)

    @precondition(lambda self: self.linking and self.verifier)
    @rule(pick=PICK)
    def warm_up(self, pick):
        number = self._pick(self.linking, pick)
        self.core.warm_up(self.sources[number])
        self.linking.discard(number)
        self.warming[number] = False

    # -- what a source does -----------------------------------------------------------------

    @precondition(lambda self: self.owed)
    @rule(pick=PICK, is_behind=st.booleans())
    def a_warm_up_plan_is_answered(self, pick, is_behind):
        number = self._pick(self.owed, pick)
        note = self.owed.pop(number)
        rows = (DraftRowResult(GONE, 1, is_behind=is_behind),)
        self.core.on_draft_result(
            DraftResult(note.step_id, 0, 0, 0, StepTiming(), number, rows=rows)
        )
        if number in self.warming:
            self.warming[number] = not is_behind

    @precondition(lambda self: self.notes)
    @rule()
    def a_source_says_that_it_is_done(self):
        note = self.notes.pop(0)
        self.core.on_draft_result(note)
        self.answered.add(note.step_id)
        self.suspects.discard(note.epoch)

    @precondition(lambda self: self.notes)
    @rule()
    def its_note_is_lost_with_the_process_that_stopped(self):
        self.notes.pop(0)

    @precondition(lambda self: self.verifier and self.verifier.queue)
    @rule(drafts_came=st.booleans())
    def a_step_is_verified(self, drafts_came):
        plan = next((p for p in self.verifier.queue if p.rows), None)
        result = self.verifier.run(drafts_came=drafts_came)
        if result is None:
            return
        self.core.apply(result, _keep)
        number = plan.source
        if not number:
            return
        if drafts_came:
            self.misses[number] = 0
        elif plan.step_id in self.answered:
            self.misses[number] = self.misses.get(number, 0) + 1
        if number not in self.places:
            return
        if not drafts_came and plan.step_id not in self.answered:
            self.suspects.add(number)
        if self.misses.get(number, 0) == 3:
            self.places.remove(number)
            self.suspects.discard(number)
            self.broken.add(number)

    @precondition(lambda self: self.verifier)
    @rule(num_turns=st.integers(1, 8), answers=st.booleans(), drafts_came=st.booleans())
    def rotate(self, num_turns, answers, drafts_came):
        """What happens nearly always, or nearly never: turns that all go the same way."""
        for _ in range(num_turns):
            self.plan()
            while self.notes and answers:
                self.a_source_says_that_it_is_done()
            self.a_step_is_verified(drafts_came)
            self.every_source_is_where_the_model_has_it()

    @precondition(lambda self: self.linking and self.verifier)
    @rule(old=PICK, falls_behind=st.booleans())
    def swap(self, old, falls_behind):
        """The whole of it, undisturbed; the answers to its plans say how it gets on."""
        self.warm_up(0)
        for is_behind in (False, falls_behind, False):
            self.rotate(1, answers=True, drafts_came=True)
            for number in list(self.owed):
                self.a_warm_up_plan_is_answered([*self.owed].index(number), is_behind=is_behind)
            self.every_source_is_where_the_model_has_it()
        self.cut_over(len(self.warming) - 1, old)

    # -- swaps ------------------------------------------------------------------------------

    @precondition(lambda self: self.warming)
    @rule(pick=PICK, old=PICK)
    def cut_over(self, pick, old):
        """In the place of one that drafts, of one that was lost long ago, or of nobody."""
        new = self._pick(self.warming, pick)
        replaced = self._pick([*self.places, *self.sources, 0], old)
        args = self.sources.get(replaced), self.sources[new]
        if replaced == new:
            return
        if not self.warming[new]:
            with pytest.raises(StateError, match="TAKE_OVER is not allowed in WARMING"):
                self.core.cut_over(*args)
            return
        self.core.cut_over(*args)
        del self.warming[new]
        self.owed.pop(new, None)
        if replaced in self.places:
            self.places[self.places.index(replaced)] = new
            self.suspects.discard(replaced)
            self.leaving.add(replaced)
        else:
            self.places.append(new)

    # -- a source ends ----------------------------------------------------------------------

    @rule(pick=PICK)
    def a_link_is_lost(self, pick):
        """Of any source that there ever was; a loss may be told twice."""
        number = self._pick(self.sources, pick)
        self.core.drop(self.sources[number])
        self._forget(number)

    @precondition(lambda self: self.verifier)
    @rule()
    def the_verifiers_session_ends(self):
        self.core.verifier_lost()
        self.verifier = None
        self.notes.clear()
        for number in self.linked:
            self._forget(number)

    @precondition(lambda self: not self.verifier)
    @rule()
    def bring_verifier_up(self):
        self.verifier = VerifierDouble(num_blocks=200)
        self.core.verifier_up(self.verifier.info)

    @rule()
    def submit(self):
        self.num_requests += 1
        request_id = RequestId(f"r{self.num_requests}")
        self.core.submit(Request(request_id, (1, 2, 3), RowParams(), 100))

    # -- always -----------------------------------------------------------------------------

    @rule()
    def plan(self):
        """What goes out names the sources that the model would have draft, and nobody else."""
        able = [n for n in self.places if n not in self.suspects]
        for draft, verify in self.core.plan():
            if verify.rows or verify.closes:
                self.verifier.receive(verify)
            expected = able[verify.batch % len(able)] if able else 0
            assert verify.source in {0, expected}
            if any(row.num_draft_tokens for row in verify.rows):
                assert verify.source == expected
            if draft is None:
                continue
            assert draft.epoch in self.linked
            note = self.doubles[draft.epoch].run(draft)
            if draft.rows and not verify.rows:
                assert self.warming.get(draft.epoch) is not None
                assert draft.epoch not in self.owed, "one warm-up plan at a time"
                self.owed[draft.epoch] = note
            elif note is not None:
                assert draft.epoch == expected
                self.notes.append(note)
        for number in self.warming:
            if self.verifier and number not in self.owed:
                self.warming[number] = True  # there was nothing to feed

    @invariant()
    def every_source_is_where_the_model_has_it(self):
        for number, source in self.sources.items():
            assert source.state is self._state(number), number
        core = self.core.sources
        assert {s.source_id for s in core} == self.linked
        assert {s.source_id for s in core.broken} == self.broken
        assert {s.source_id for s in core.warming} == {*self.warming}
        able = [n for n in self.places if n not in self.suspects]
        for batch in range(NUM_BATCHES):
            found = core.of_batch(batch)
            assert (found.source_id if found else 0) == (able[batch % len(able)] if able else 0)
        for number in self.owed:
            if number in self.warming:
                assert self.sources[number].owed_step == self.owed[number].step_id

    @property
    def linked(self) -> set[int]:
        return {*self.warming, *self.places, *self.broken, *self.leaving}

    def _state(self, number: int) -> State:
        if number in self.linking:
            return State.LINKING
        if number in self.warming:
            return State.WARM if self.warming[number] else State.WARMING
        if number in self.suspects:
            return State.SUSPECT
        if number in self.places:
            return State.SERVING
        if number in self.broken:
            return State.BROKEN
        return State.LEAVING if number in self.leaving else State.GONE

    def _forget(self, number: int) -> None:
        for group in (self.linking, self.suspects, self.broken, self.leaving):
            group.discard(number)
        self.warming.pop(number, None)
        self.owed.pop(number, None)
        self.notes = [note for note in self.notes if note.epoch != number]
        if number in self.places:
            self.places.remove(number)

    def _pick(self, among, pick: int) -> int:
        found = list(among)
        return found[pick % len(found)]


def _keep(request, row) -> Kept:
    """All that the request has room for; what ends there does not outgrow the model's context."""
    num_tokens = min(len(row.token_ids), request.max_len - request.num_tokens)
    is_last = request.num_tokens + num_tokens == request.max_len
    return Kept(num_tokens, "length" if is_last else None)


TestSourcesMachine = SourcesMachine.TestCase
TestSourcesMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestSourcesMachine = pytest.mark.timeout(60)(TestSourcesMachine)
