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
from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.types import Mode, RequestId, RowParams, Speculation
from tests.block_rules import BlockRules
from tests.worker_doubles import DrafterDouble, VerifierDouble, continuation

BUDGET = 8
MAX_WAITING = 12
CONTEXT = 40
BLOCK = 4


@dataclass
class Wanted:
    """What was asked for."""

    prompt: tuple[int, ...]
    max_tokens: int
    k: int | None


@dataclass
class Flight:
    """A step in flight."""

    plan: VerifyPlan
    owners: dict[int, str]
    blocks: set[int]
    """What the step may touch; nobody else may get any of it before the step has ended."""
    drafts_in: bool = False
    decoding: frozenset[str] = frozenset()
    """Owners that are past their prefill."""


@dataclass
class WarmUp:
    """A drafter on its way to serve."""

    step_id: int = 0
    is_behind: bool = False
    is_warm: bool = False


class CoreModel:
    """See the module docstring."""

    def __init__(self, mode: Mode, *, num_blocks=60, drafter_context=CONTEXT, max_waiting=None):
        self.max_waiting = MAX_WAITING if max_waiting is None else max_waiting
        self.core = Core(mode, prefill_budget_tokens=BUDGET, max_waiting=self.max_waiting)
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
        self.suspects: set[int] = set()
        self.missed: dict[int, int] = {}
        """By source: steps in a row without its drafts, though it said that it had drafted."""
        self.broken: set[int] = set()
        self.sources: dict[int, DraftSource] = {}
        """Every one that there ever was; the model only names them."""
        self.last_epoch = self.num_submitted = self.num_outputs = self.num_stale = 0
        self.bring_verifier_up()
        self.bring_drafter_up()

    # -- requests ---------------------------------------------------------------------------

    def submit(self, prompt, max_tokens, k=None) -> str:
        request_id = RequestId(f"r{self.num_submitted}")
        request = Request(request_id, prompt, RowParams(), max_tokens, speculation=Speculation(k))
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
        batches = range(self.core.mode.num_batches)
        idle = [b for b in batches if b not in self.flights]
        num_preemptions = self.core.counters.num_preemptions
        for draft, verify in self.core.plan():
            if draft is not None and draft.rows and not verify.rows:
                self._take_warm_up(draft)
            else:
                self._take(draft, verify)
        if self.verifier is None:
            return
        for warming in self.warming.values():
            if not warming.step_id:  # there was nothing to tell it
                warming.is_warm, warming.is_behind = True, False
        if self.core.counters.num_preemptions == num_preemptions:
            sizes = [self.core.batches.size(b) for b in batches]
            assert all(sizes[b] - min(sizes) <= 1 for b in idle), "unbalanced at its sync point"
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
        wanted = {r.row_id: r.num_draft_tokens for r in verify.rows if r.num_draft_tokens}
        drafted = {} if draft is None else {r.row_id: r.num_draft_tokens for r in draft.rows}
        assert wanted == {row_id: k for row_id, k in drafted.items() if k}
        epoch = self.epoch_of(verify.batch)
        assert verify.source == (epoch if wanted else 0)
        assert draft is None or not draft.rows or draft.epoch == epoch
        if not verify.rows:
            return
        assert verify.batch not in self.flights, "two steps of one batch in flight"
        by_row = {r.row_id: r for r in self.core.requests.values() if r.row_id}
        owners = {row.row_id: str(by_row[row.row_id].request_id) for row in verify.rows}
        assert set(owners.values()) <= set(self.core.batches.members(verify.batch))
        suspects = self.failed.keys() | self._on_trial()
        assert len(owners) == 1 or not suspects & set(owners.values()), "not alone"
        admitted = {r.request_id for r in self.core.requests.values() if r.row_id}
        assert not self.flights or not self._on_trial() & admitted, "beside one on trial"
        prefilled, decoding = 0, set()
        for row in verify.rows:
            request = by_row[row.row_id]
            if request.phase is Phase.PREFILLING:
                prefilled += row.num_feed
                assert row.num_draft_tokens == 0
            else:
                decoding.add(request.request_id)
                assert row.num_feed == 1
                k = self._expected_k(request, epoch)
                assert row.num_draft_tokens == min(k, self.rules.short.get(row.row_id, k))
        assert prefilled <= BUDGET
        blocks = {block for row in verify.rows for block in by_row[row.row_id].block_ids}
        for flight in self.flights.values():
            assert not blocks & flight.blocks, "a block that a step in flight may write"
        self.flights[verify.batch] = Flight(verify, owners, blocks, decoding=frozenset(decoding))

    def _on_trial(self) -> set[str]:
        return {request_id for request_id, num in self.deaths.items() if num >= 2}

    def _expected_k(self, request, epoch) -> int:
        want = self.live[request.request_id]
        length = len(want.prompt) + len(request.output_token_ids)
        k = self.core.mode.num_draft_tokens if epoch else 0
        k = min(k, k if want.k is None else want.k)
        k = min(k, len(want.prompt) + want.max_tokens - length - 1, CONTEXT - length - 1)
        return max(min(k, self.drafter_context - length), 0)

    def _take_warm_up(self, draft) -> None:
        """A warming drafter is told exactly of what it lacks, one plan at a time."""
        warming, double = self.warming[draft.epoch], self.doubles[draft.epoch]
        assert warming.step_id == 0
        told = {row_id: len(row.history) for row_id, row in double.rows.items()}
        k = self.core.mode.num_draft_tokens
        wanted = {
            r.row_id
            for r in self.core.requests.values()
            if r.phase is not Phase.WAITING
            and k > 0
            and self.live[r.request_id].k != 0
            and r.num_tokens < self.drafter_context
            and (warming.is_behind or told.get(r.row_id, 0) < r.num_tokens)
        }
        assert {row.row_id for row in draft.rows} == wanted
        assert not any(row.num_draft_tokens for row in draft.rows)
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
        elif flight.drafts_in:
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
        warming = self.warming.get(note.epoch)
        if warming is not None and warming.step_id == note.step_id:
            warming.step_id = 0
            warming.is_behind = note.num_behind > 0
            warming.is_warm = not warming.is_behind
        self.core.on_draft_result(note)

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
        """It fails at what it is running: those in that step are to blame, and nobody else."""
        at = self.order[0] if self.order else self.oldest
        blamed = list(self.flights[at].owners.values()) if self.flights else []
        for request_id in blamed:
            self.failed[request_id] = self.failed.get(request_id, 0) + 1
        given_up = [str(request.request_id) for request in self.core.blame()]
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
            self.warming.pop(epoch, None)
            self.suspects.discard(epoch)
            self.broken.discard(epoch)
        self.serving = [epoch for epoch in self.serving if epoch in self.doubles]

    # -- always -----------------------------------------------------------------------------

    def check(self) -> None:
        """Core equals model."""
        core = self.core
        core.check()
        assert {i: (r.prompt_token_ids, r.max_tokens) for i, r in core.requests.items()} == {
            i: (w.prompt, w.max_tokens) for i, w in self.live.items()
        }
        assert all(times == 1 for times in self.ended.values()), "one end a request"
        assert core.sources.newest == max({*self.serving} - self.broken, default=0)
        self._check_drafters()
        counters = core.counters
        assert counters.num_requests == self.num_submitted == len(self.live) + len(self.ended)
        assert sum(counters.num_finished.values()) == len(self.ended)
        assert counters.num_output_tokens == self.num_outputs
        assert counters.num_stale_results == self.num_stale
        assert counters.num_accepted_tokens <= counters.num_draft_tokens
        batches = range(core.mode.num_batches)
        in_flight = [self.flights[b].plan.step_id if b in self.flights else 0 for b in batches]
        assert [core.in_flight_step(b) for b in batches] == in_flight
        assert core._verifying.begun == self.order
        at = self.order[0] if self.order else self.oldest
        owed = self.flights[at].plan.step_id if self.flights else 0
        assert core.owed_by_verifier == owed
        assert core.oldest_step == min((f.plan.step_id for f in self.flights.values()), default=0)
        assert core.is_idle == (not self.live and not self.flights)
        waiting = [r.arrival for r in core._table.waiting]
        assert waiting == sorted(waiting), "first come, first served"
        assert len(waiting) == core.num_waiting == len(self.live) - core.num_running
        self._check_phases()

    def _check_drafters(self) -> None:
        core = self.core
        assert [source.source_id for source in core.sources.warming] == list(self.warming)
        for epoch, warming in self.warming.items():
            assert self.sources[epoch].is_warm == warming.is_warm
        assert {source.source_id for source in core.sources.broken} == self.broken
        assert {epoch for epoch, s in self.sources.items() if not s.is_gone} == {*self.doubles}
        for batch in range(core.mode.num_batches):
            source = core.sources.of_batch(batch)
            assert (source.source_id if source else 0) == self.epoch_of(batch)
        for epoch, double in self.doubles.items():
            in_flight = any(flight.plan.source == epoch for flight in self.flights.values())
            assert core.uses(self.sources[epoch]) == in_flight
            told = {
                r.row_id: r.drafter_lens[epoch]
                for r in core.requests.values()
                if epoch in r.drafter_lens
            }
            knows = {row_id: len(row.history) for row_id, row in double.rows.items()}
            closing = core._table._drafter_closes.get(epoch, [])
            assert len(closing) == len(set(closing)), "closed twice"
            assert not told.keys() & set(closing)
            assert told == {r: length for r, length in knows.items() if r not in closing}
            assert set(closing) <= knows.keys()
        known = {e for r in core.requests.values() for e in r.drafter_lens}
        assert known | core._table._drafter_closes.keys() <= self.doubles.keys()

    def _check_phases(self) -> None:
        in_step = {}
        for batch, flight in self.flights.items():
            ks = {row.row_id: row.num_draft_tokens for row in flight.plan.rows}
            for row_id, owner in flight.owners.items():
                in_step[owner] = (batch, flight, ks[row_id])
        for request_id, request in self.core.requests.items():
            batch = self.core.batches.batch_of(request_id)
            assert (request.phase is Phase.WAITING) == (batch is None)
            if request_id not in in_step:
                assert request.phase in {Phase.WAITING, Phase.PREFILLING, Phase.READY}
                continue
            step_batch, flight, k = in_step[request_id]
            assert batch == step_batch, "a request with a step in flight changed its batch"
            if request.phase is Phase.PREFILLING:
                assert k == 0
            elif k == 0:
                assert request.phase is Phase.VERIFYING
            elif not flight.drafts_in:
                assert request.phase is Phase.DRAFTING
            elif self.order[:1] == [batch]:
                assert request.phase is Phase.VERIFYING
            else:
                assert request.phase is Phase.DRAFTED

    def run_dry(self) -> int:
        """Go on until nobody is left; say how many steps it took.

        Nobody starves: the oldest always moves, so all together cannot need much more than one
        after the other.
        """
        if self.verifier is None:
            self.bring_verifier_up()
        serial = sum(
            want.max_tokens + 1 + -(-(len(want.prompt) + want.max_tokens) // BUDGET)
            for want in self.live.values()
        )
        steps = 0
        while self.live or self.flights:
            self.rotate(
                lambda row_id, k, turn=steps: (row_id * 7 + turn) % (k + 1),
                drafts_in=steps % 2 == 0,
            )
            self.check()
            steps += 1
            assert steps <= 2 * serial + 3, "starvation"
        self.plan()
        assert self.core.is_idle
        assert self.core.blocks.num_free == self.num_blocks
        return steps
