"""Drives a `Core` between checking workers and keeps a plain model of what must be true.

Used by the state machine (hypothesis picks the events), by the storm (a seed picks them) and by
unit tests (the test picks them). Every method is one event; `check` compares core and model.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest

from minedraft.errors import InvalidRequestError, QueueFullError, StateError
from minedraft.plans import StepBegun, VerifyPlan, VerifyResult
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.shapes import Shape
from minedraft.types import Mode, RequestId, RowParams, Speculation
from tests.block_rules import BlockRules
from tests.core_checks import check_core, run_dry
from tests.plan_checks import BUDGET, CONTEXT, Flight, check_plans, check_warm_up
from tests.worker_doubles import DrafterDouble, VerifierDouble, continuation

MAX_WAITING = 12
BLOCK = 4


@dataclass
class Wanted:
    """What was asked for."""

    prompt: tuple[int, ...]
    max_tokens: int
    k: int | None


@dataclass
class WarmUp:
    """A drafter on its way to serve."""

    step_id: int = 0
    is_behind: bool = False
    is_warm: bool = False


class CoreModel:
    """See the module docstring."""

    def __init__(
        self,
        mode: Mode,
        *,
        num_blocks=60,
        drafter_context=CONTEXT,
        max_waiting=None,
        prefix_cache=True,
    ):
        self.max_waiting = MAX_WAITING if max_waiting is None else max_waiting
        self.core = Core(
            mode,
            prefill_budget_tokens=BUDGET,
            max_waiting=self.max_waiting,
            prefix_cache=prefix_cache,
        )
        self.rules = BlockRules(self.core._table)
        self.num_blocks = num_blocks
        self.drafter_context = drafter_context
        self.live: dict[str, Wanted] = {}
        self.ended: dict[str, int] = {}
        self.outputs: dict[str, list[int]] = {}
        self.failed: dict[str, int] = {}
        """Failures of the verifier at a step with this one in it, since it last decoded."""
        self.deaths: dict[str, int] = {}
        """Verifier processes that died with this one in flight, since it last decoded."""
        self.died: tuple[list[str], bool] = ([], False)
        """Who was in flight when the last session broke without a word, and whether alone."""
        self.flights: dict[int, Flight] = {}
        self.order: list[int] = []  # batches whose steps have begun, as far as the core was told
        self.notes: deque[StepBegun] = deque()
        """Steps that have begun; of each the core is told before its answer."""
        self.answers: deque[VerifyResult] = deque()
        self.old_answers: list[VerifyResult] = []
        self.draft_answers: list = []
        self.sent: list[VerifyPlan] = []
        self.verifier: VerifierDouble | None = None
        self.doubles: dict[int, DrafterDouble] = {}
        """By epoch: all that are linked, also those that a cut-over has replaced."""
        self.serving: list[int] = []
        """Epochs, by place."""
        self.warming: dict[int, WarmUp] = {}
        self.behind: dict[int, dict[int, bool]] = {}
        """By epoch, rows that it has not caught up with; whether a row that feeds it is out."""
        self.suspects: set[int] = set()
        self.missed: dict[int, int] = {}
        """By source: steps in a row without its drafts, though it said that it had drafted."""
        self.broken: set[int] = set()
        self.sources: dict[int, DraftSource] = {}
        """Every one that there ever was; the model only names them."""
        self.catch_ups: dict[int, int] = {}
        """By source that drafts: the step of a plan that only feeds it."""
        self.last_epoch = self.num_submitted = self.num_outputs = self.num_stale = 0
        self.bring_verifier_up()
        self.bring_drafter_up()

    # -- requests ---------------------------------------------------------------------------

    def submit(self, prompt, max_tokens, k=None, priority=0) -> str:
        request_id = RequestId(f"r{self.num_submitted}")
        request = Request(
            request_id,
            prompt,
            RowParams(),
            max_tokens,
            speculation=Speculation(k),
            priority=priority,
        )
        need = -(-(len(prompt) + max_tokens - 1) // BLOCK)
        if self.core.num_waiting >= self.max_waiting:
            with pytest.raises(QueueFullError, match=str(self.max_waiting)):
                self.core.submit(request)
        elif self.verifier is not None and need > self.num_blocks:
            with pytest.raises(InvalidRequestError, match=f"{need} KV blocks") as caught:
                self.core.submit(request)
            assert caught.value.field == "sampling.max_tokens"
        elif need <= self.num_blocks:
            self.core.submit(request)
            self.num_submitted += 1
            self.live[request_id] = Wanted(prompt, max_tokens, k)
        return request_id

    def abort(self, request_id) -> None:
        assert self.core.finish(request_id, "abort") == (request_id in self.live)
        if self.live.pop(request_id, None) is not None:
            self._end(request_id)

    def _end(self, request_id) -> None:
        self.ended[request_id] = self.ended.get(request_id, 0) + 1
        self.deaths.pop(request_id, None)
        for flight in self.flights.values():
            flight.owners = {r: o for r, o in flight.owners.items() if o != request_id}

    # -- steps ------------------------------------------------------------------------------

    def plan(self) -> None:
        idle = [b for b in self.core.batches.numbers if b not in self.flights]
        num_preemptions = self.core.counters.num_preemptions
        for draft, verify in self.core.plan():
            if draft is not None and draft.rows and not verify.rows:
                self._take_warm_up(draft)
            else:
                self._take(draft, verify)
        if self.verifier is None:
            return
        batches = range(self.core.batches.num_batches)
        for warming in self.warming.values():
            if not warming.step_id:  # there was nothing to tell it
                warming.is_warm, warming.is_behind = True, False
        if self.core.counters.num_preemptions == num_preemptions:
            sizes = [self.core.batches.size(b) for b in batches]
            open_idle = [b for b in idle if b in batches]
            assert all(sizes[b] - min(sizes) <= 1 for b in open_idle), (
                "unbalanced at its sync point"
            )
        closing = [b for b in idle if b not in batches]
        assert not any(self.core.batches.size(b) for b in closing), "closing at its sync point"
        assert self.flights or not self.live, "requests are live and nothing moves"
        if not self.flights:
            assert self.core.blocks.num_used == 0
            closing = {row_id for plan in self.verifier.queue for row_id in plan.closes}
            assert set(self.verifier.rows) == closing
            assert not any(double.rows for double in self.doubles.values())

    def _take(self, draft, verify) -> None:
        self.sent.append(verify)
        self.verifier.receive(verify)
        if draft is not None:
            answer = self.doubles[draft.epoch].run(draft)
            if answer is not None:
                assert (draft.step_id, draft.batch) == (verify.step_id, verify.batch)
                self.draft_answers.append(answer)
        flight = check_plans(self, draft, verify)
        if flight is not None:
            self.flights[verify.batch] = flight

    def _take_warm_up(self, draft) -> None:
        """A drafter is told exactly of what it lacks, one plan at a time."""
        double, behind = self.doubles[draft.epoch], self.behind.get(draft.epoch, {})
        behind.update(dict.fromkeys({row.row_id for row in draft.rows} & behind.keys(), True))
        if draft.epoch in self.serving:
            assert draft.epoch not in self.catch_ups
            assert self.core.shaper.shape.num_draft_tokens == 0
            check_warm_up(self, draft, is_behind=False)
            self.catch_ups[draft.epoch] = draft.step_id
            self.draft_answers.append(double.run(draft))
            return
        warming = self.warming[draft.epoch]
        assert warming.step_id == 0
        check_warm_up(self, draft, is_behind=warming.is_behind)
        self.draft_answers.append(double.run(draft))
        warming.step_id = draft.step_id

    def work(self, accept=lambda _row_id, k: k, *, drafts_came=True, pick=0) -> None:
        """The verifier runs a plan, that of any batch; note and answer are on their way."""
        result = self.verifier.run(accept, drafts_came=drafts_came, pick=pick)
        if result is not None:
            self.notes.append(StepBegun(result.step_id, result.batch))
            self.answers.append(result)

    def begin(self) -> None:
        """The oldest note arrives: a step has begun."""
        note = self.notes.popleft()
        self.core.on_step_begun(note)
        self.order.append(note.batch)
        flight = self.flights[note.batch]
        flight.began_early = not flight.drafts_in

    def answer(self) -> None:
        """The oldest verify answer arrives, behind the note that its step has begun."""
        if not self.order:
            self.begin()
        result = self.answers.popleft()
        assert self.order.pop(0) == result.batch, "answers come in the order of the notes"
        flight = self.flights.pop(result.batch)
        self.num_stale += len(flight.plan.rows) - len(flight.owners)
        self._note_drafts(flight, result.num_stale_drafts)
        live = [row for row in result.rows if row.row_id in flight.owners and row.token_ids]
        outcomes = self.core.apply(result, self._keep)
        assert [(o.request.request_id, o.row) for o in outcomes] == [
            (flight.owners[row.row_id], row) for row in live
        ]
        for outcome in outcomes:
            assert outcome.failure is None
            request, num_tokens = outcome.request, len(outcome.row.token_ids)
            self.num_outputs += num_tokens
            if request.request_id in flight.decoding:
                self.failed.pop(request.request_id, None)
                self.deaths.pop(request.request_id, None)
            want = self.live[request.request_id]
            output = request.output_token_ids
            assert output == continuation(want.prompt, len(output))
            assert len(output) <= want.max_tokens
            assert request.is_finished == (len(output) == want.max_tokens)
            if request.is_finished:
                del self.live[request.request_id]
                self.outputs[request.request_id] = output
                self._end(request.request_id)
        self.old_answers.append(result)

    def _keep(self, request, row) -> Kept:
        """All of a row's tokens are kept; the last one of what was asked for ends the request."""
        num_output = len(request.output_token_ids) + len(row.token_ids)
        is_last = num_output == self.live[request.request_id].max_tokens
        return Kept(len(row.token_ids), "length" if is_last else None)

    def _note_drafts(self, flight: Flight, num_stale: int) -> None:
        """All of a step's drafts came, or none."""
        source = flight.plan.source
        if not num_stale:
            self.missed[source] = 0
        elif flight.drafts_in and not flight.began_early:
            self.missed[source] = self.missed.get(source, 0) + 1
        if source not in self.serving or source in self.broken:
            return
        if num_stale and not flight.drafts_in:
            self.suspects.add(source)
        if self.missed.get(source, 0) >= 3:
            self.broken.add(source)
            self.suspects.discard(source)

    def answer_again(self, index) -> None:
        """An answer to a step that is not in flight: a repeat, or one for a lost session."""
        result = self.old_answers[index % len(self.old_answers)]
        self.core.on_step_begun(StepBegun(result.step_id, result.batch))
        assert self.core.apply(result, self._keep) == []
        self.num_stale += len(result.rows)

    def draft_answer(self, index=0, *, keep=False) -> None:
        """A drafter's note arrives: in time, late, or (`keep`) not for the last time."""
        index %= len(self.draft_answers)
        note = self.draft_answers[index] if keep else self.draft_answers.pop(index)
        flight = self.flights.get(note.batch)
        told = (note.step_id, note.epoch)
        if flight is not None and (flight.plan.step_id, flight.plan.source) == told:
            flight.drafts_in = True
        self.suspects.discard(note.epoch)
        if self.catch_ups.get(note.epoch) == note.step_id:
            del self.catch_ups[note.epoch]
        warming = self.warming.get(note.epoch)
        if warming is not None and warming.step_id == note.step_id:
            warming.step_id = 0
            warming.is_behind = note.num_behind > 0
            warming.is_warm = not warming.is_behind
        self._note_behind(note)
        self.core.on_draft_result(note)

    def _note_behind(self, note) -> None:
        double = self.doubles.get(note.epoch)
        behind = self.behind.setdefault(note.epoch, {})
        for row in note.rows:
            if double is None or row.row_id not in double.rows:
                continue  # the row has ended, or the link
            if row.is_behind:
                behind[row.row_id] = False
            else:
                behind.pop(row.row_id, None)

    def reshape(self, num_batches, num_draft_tokens, *, is_wide=False) -> None:
        """The coordinator takes another shape, and stays with it whatever costs say."""
        self.core.shaper.look = lambda *_, **__: False
        self.core.shaper.switch(Shape(num_batches, num_draft_tokens, is_wide))
        self.core._planner.reshape()

    def rotate(self, accept=lambda _row_id, k: k, *, drafts_in=True) -> None:
        """What happens nearly always: plan, draft, verify, commit."""
        self.plan()
        while drafts_in and self.draft_answers:
            self.draft_answer()
        if not self.answers:
            self.work(accept)
        if self.answers:
            self.answer()

    # -- workers ----------------------------------------------------------------------------

    @property
    def oldest(self) -> int | None:
        """The batch with the oldest step in flight."""
        return min(self.flights, key=lambda b: self.flights[b].plan.step_id, default=None)

    @property
    def drafter(self) -> DrafterDouble | None:
        """One that serves, if any does."""
        return self.doubles[self.serving[0]] if self.serving else None

    def epoch_of(self, batch: int) -> int:
        unable = self.suspects | self.broken
        able = [epoch for epoch in self.serving if epoch not in unable]
        return able[batch % len(able)] if able else 0

    def lose_verifier(self, *, may_have_died: bool = False) -> None:
        self.died = ([], False)
        if may_have_died:
            owners = [owner for f in self.flights.values() for owner in f.owners.values()]
            self.died = (owners, sum(len(f.plan.rows) for f in self.flights.values()) == 1)
        for epoch in [*self.doubles]:
            if epoch not in self.serving and epoch not in self.warming:
                self.drop_drafter(epoch)
        self.core.verifier_lost(may_have_died=may_have_died)
        self.old_answers += self.answers
        self.answers.clear()
        self.flights.clear()
        self.order.clear()
        self.notes.clear()
        self.verifier = None
        self._forget_drafters([*self.doubles])

    def fail_verifier(self) -> None:
        """It fails at what it is running: those in that step are suspects, and no others."""
        at = self.order[0] if self.order else self.oldest
        blamed = list(self.flights[at].owners.values()) if self.flights else []
        for request_id in blamed:
            self.failed[request_id] = self.failed.get(request_id, 0) + 1
        given_up = [str(request.request_id) for request in self.core.step_failed()]
        assert given_up == [request_id for request_id in blamed if self.failed[request_id] == 3]
        for request_id in given_up:
            self.abort(request_id)
        self.lose_verifier()

    def bring_verifier_up(self, *, is_new: bool = True) -> None:
        in_flight, was_alone = self.died if is_new else ([], False)
        guilty = []
        for request_id in in_flight:
            if request_id in self.live:
                self.deaths[request_id] = self.deaths.get(request_id, 0) + 1
                if self.deaths[request_id] >= 3 and was_alone:
                    guilty.append(request_id)
        given_up = [str(r.request_id) for r in self.core.verdict(has_died=is_new)]
        assert given_up == guilty
        for request_id in given_up:
            self.abort(request_id)
        self.died = ([], False)
        self.verifier = VerifierDouble(
            num_blocks=self.num_blocks, block_size=BLOCK, max_model_len=CONTEXT
        )
        self.core.verifier_up(self.verifier.info)

    def lose_drafter(self) -> None:
        """All that serve or warm up."""
        for source in self.core.sources:
            if source.source_id in (*self.serving, *self.warming):
                self.core.drop(source)
        self._forget_drafters([*self.serving, *self.warming])

    def bring_drafter_up(self) -> None:
        """A drafter, in the place of those that are there."""
        self.lose_drafter()
        self.add_drafter()

    def add_drafter(self) -> int:
        """A drafter beside the others."""
        double = self._link()
        self.serving.append(double.epoch)
        self.core.serve(self.sources[double.epoch])
        return double.epoch

    def drop_drafter(self, epoch: int) -> None:
        self.core.drop(self.sources[epoch])
        self._forget_drafters([epoch])

    def warm_up(self, num_slow: int = 0) -> int:
        double = self._link(num_slow)
        self.warming[double.epoch] = WarmUp()
        self.core.warm_up(self.sources[double.epoch])
        return double.epoch

    def cut_over(self, old: int, new: int) -> None:
        """The old one stays linked until it is dropped."""
        if not self.warming[new].is_warm:
            with pytest.raises(StateError, match="TAKE_OVER is not allowed in WARMING"):
                self.core.cut_over(self.sources.get(old), self.sources[new])
            return
        self.core.cut_over(self.sources.get(old), self.sources[new])
        del self.warming[new]
        self.catch_ups.pop(old, None)
        if old in self.serving and old not in self.broken:
            self.serving[self.serving.index(old)] = new
            self.suspects.discard(old)
        else:
            self.serving.append(new)

    def _link(self, num_slow: int = 0) -> DrafterDouble:
        self.last_epoch += 1
        self.doubles[self.last_epoch] = DrafterDouble(
            self.last_epoch, max_model_len=self.drafter_context, num_slow=num_slow
        )
        self.sources[self.last_epoch] = DraftSource(
            self.last_epoch, self.doubles[self.last_epoch].info
        )
        return self.doubles[self.last_epoch]

    def _forget_drafters(self, epochs) -> None:
        for epoch in epochs:
            self.doubles.pop(epoch, None)
            self.behind.pop(epoch, None)
            self.warming.pop(epoch, None)
            self.catch_ups.pop(epoch, None)
            self.suspects.discard(epoch)
            self.broken.discard(epoch)
        self.serving = [epoch for epoch in self.serving if epoch in self.doubles]

    # -- always -----------------------------------------------------------------------------

    def check(self) -> None:
        """Core equals model."""
        check_core(self)

    def run_dry(self) -> int:
        """Go on until nobody is left; say how many steps it took."""
        return run_dry(self)
