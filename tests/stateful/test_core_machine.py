"""The core under any order of events, against workers that check every plan and a plain model.

Losing the verifier or the drafter, answers late or twice, aborts in every phase, a pool so small
that requests preempt each other: outputs are a function of the prompt alone, nobody starves, and
what is taken is given back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

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

from minedraft.errors import (
    DuplicateRequestError,
    InvalidRequestError,
    PreconditionError,
    QueueFullError,
)
from minedraft.admin import Mode
from minedraft.plans import VerifyPlan, VerifyResult
from minedraft.services.coordinator.core import Core
from minedraft.services.coordinator.request import Phase, Request
from minedraft.types import RequestId, RowParams, Speculation
from tests.worker_doubles import VOCAB, DrafterDouble, VerifierDouble, continuation

BUDGET = 8
MAX_WAITING = 12
CONTEXT = 40
BLOCK = 4


@dataclass
class Wanted:
    """What the model knows of a request."""

    prompt: tuple[int, ...]
    max_tokens: int
    k: int | None


@dataclass
class Flight:
    """A step the model knows to be in flight."""

    plan: VerifyPlan
    owners: dict[int, str]
    drafts_in: bool = False


class CoreMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(
        num_batches=st.sampled_from((1, 2, 2, 2, 3)),
        max_batch_size=st.integers(1, 4),
        k=st.sampled_from((0, 1, 3, 7)),
        num_blocks=st.sampled_from((4, 7, 10, 60)),
        drafter_context=st.sampled_from((CONTEXT, 20)),
    )
    def start(self, num_batches, max_batch_size, k, num_blocks, drafter_context):
        self.core = Core(
            Mode(num_batches, max_batch_size, k),
            prefill_budget_tokens=BUDGET,
            max_waiting=MAX_WAITING,
        )
        self.num_blocks = num_blocks
        self.drafter_context = drafter_context
        self.live: dict[str, Wanted] = {}
        self.ended: dict[str, int] = {}
        self.flights: dict[int, Flight] = {}
        self.order: list[int] = []  # batches, in the order their plans went to the verifier
        self.answers: deque[VerifyResult] = deque()
        self.old_answers: list[VerifyResult] = []
        self.draft_answers: list = []
        self.verifier: VerifierDouble | None = None
        self.drafter: DrafterDouble | None = None
        self.epoch = 0
        self.num_submitted = 0
        self.num_outputs = 0
        self.num_stale = 0
        self.bring_verifier_up()
        self.bring_drafter_up()

    # -- requests ---------------------------------------------------------------------------

    @rule(
        requests=st.lists(
            st.tuples(
                st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20).map(tuple),
                st.integers(1, 20),
                st.sampled_from((None, None, None, 0, 2)),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def submit(self, requests):
        for prompt, max_tokens, k in requests:
            self.submit_one(prompt, max_tokens, k)

    def submit_one(self, prompt, max_tokens, k):
        request_id = RequestId(f"r{self.num_submitted}")
        request = Request(request_id, prompt, RowParams(), max_tokens, speculation=Speculation(k))
        need = -(-(len(prompt) + max_tokens) // BLOCK)
        if self.core.num_waiting >= MAX_WAITING:
            with pytest.raises(QueueFullError, match=str(MAX_WAITING)):
                self.core.submit(request)
        elif self.verifier is not None and need > self.num_blocks:
            with pytest.raises(InvalidRequestError, match=f"{need} KV blocks"):
                self.core.submit(request)
        elif need <= self.num_blocks:
            self.core.submit(request)
            self.num_submitted += 1
            self.live[request_id] = Wanted(prompt, max_tokens, k)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def submit_a_live_id_again(self, data):
        request_id = data.draw(st.sampled_from(sorted(self.live)))
        with pytest.raises(DuplicateRequestError, match=request_id):
            self.core.submit(Request(RequestId(request_id), (1,), RowParams(), 1))

    @rule(index=st.integers(0, 40))
    def abort(self, index):
        """Live, ended and never seen ones."""
        ids = sorted(self.live) or [f"r{index}"]
        self.abort_one(RequestId(ids[index % len(ids)]))

    @precondition(lambda self: self.ended)
    @rule(index=st.integers(0, 40))
    def abort_an_ended_one(self, index):
        self.abort_one(RequestId(sorted(self.ended)[index % len(self.ended)]))

    def abort_one(self, request_id):
        assert self.core.finish(request_id, "abort") == (request_id in self.live)
        if self.live.pop(request_id, None) is not None:
            self.end(request_id)

    @precondition(lambda self: self.live)
    @rule(batch=st.integers(0, 2))
    def abort_a_whole_batch(self, batch):
        if batch < self.core.mode.num_batches:
            for request_id in self.core.batches.members(batch):
                self.abort_one(request_id)

    def end(self, request_id):
        self.ended[request_id] = self.ended.get(request_id, 0) + 1
        for flight in self.flights.values():
            flight.owners = {r: o for r, o in flight.owners.items() if o != request_id}

    # -- steps ------------------------------------------------------------------------------

    @rule()
    def plan(self):
        idle = [b for b in range(self.core.mode.num_batches) if b not in self.flights]
        num_preemptions = self.core.counters.num_preemptions
        for draft, verify in self.core.plan():
            self.take_plans(draft, verify)
        if self.core.counters.num_preemptions == num_preemptions and self.verifier is not None:
            sizes = [self.core.batches.size(b) for b in range(self.core.mode.num_batches)]
            assert all(sizes[b] - min(sizes) <= 1 for b in idle), "unbalanced at its sync point"
        if self.live and self.verifier is not None:
            assert self.flights, "requests are live and nothing moves"
        if not self.core.requests and not self.flights and self.verifier is not None:
            assert self.core.blocks.num_used == 0
            assert not self.expected_rows(self.verifier)
            assert self.drafter is None or not self.drafter.rows

    def take_plans(self, draft, verify):
        assert self.verifier is not None
        self.verifier.receive(verify)
        if draft is not None:
            assert self.drafter is not None
            answer = self.drafter.run(draft)
            if answer is not None:
                assert draft.step_id == verify.step_id
                self.draft_answers.append(answer)
        wanted = {r.row_id: r.num_draft_tokens for r in verify.rows if r.num_draft_tokens}
        drafted = {} if draft is None else {r.row_id: r.num_draft_tokens for r in draft.rows}
        assert wanted == {row_id: k for row_id, k in drafted.items() if k}
        assert verify.epoch == (self.epoch if wanted else 0)
        if not verify.rows:
            return
        assert verify.batch not in self.flights, "two steps of one batch in flight"
        by_row = {r.row_id: r for r in self.core.requests.values() if r.row_id}
        owners = {row.row_id: str(by_row[row.row_id].request_id) for row in verify.rows}
        members = self.core.batches.members(verify.batch)
        assert set(owners.values()) <= set(members)
        prefilled = 0
        for row in verify.rows:
            request = by_row[row.row_id]
            if request.phase is Phase.PREFILLING:
                prefilled += row.num_feed
                assert row.num_draft_tokens == 0
            else:
                assert row.num_feed == 1
                assert row.num_draft_tokens == self.expected_k(request)
        assert prefilled <= BUDGET
        self.flights[verify.batch] = Flight(verify, owners)
        self.order.append(verify.batch)

    def expected_k(self, request):
        want = self.live[request.request_id]
        length = len(want.prompt) + len(request.output_token_ids)
        k = self.core.mode.num_draft_tokens if self.drafter is not None else 0
        k = min(k, k if want.k is None else want.k)
        k = min(k, len(want.prompt) + want.max_tokens - length - 1, CONTEXT - length - 1)
        return k if length + k <= self.drafter_context else 0

    @precondition(lambda self: self.verifier is not None)
    @rule(data=st.data(), drafts_came=st.sampled_from((True, True, True, False)))
    def verifier_works(self, data, drafts_came):
        def accept(_row_id, k):
            return data.draw(st.integers(0, k)) if k else 0

        result = self.verifier.run(accept, drafts_came=drafts_came)
        if result is not None:
            self.answers.append(result)

    @precondition(lambda self: self.answers)
    @rule()
    def verify_answer(self):
        result = self.answers.popleft()
        assert self.order.pop(0) == result.batch, "the verifier is first-in first-out"
        flight = self.flights.pop(result.batch)
        self.num_stale += len(flight.plan.rows) - len(flight.owners)
        committed = self.core.on_verify_result(result)
        assert [(r.request_id, row) for r, row in committed] == [
            (flight.owners[row.row_id], row)
            for row in result.rows
            if row.row_id in flight.owners and row.token_ids
        ]
        for request, row in committed:
            self.core.commit(request, row.token_ids)
            self.num_outputs += len(row.token_ids)
            want = self.live[request.request_id]
            output = request.output_token_ids
            assert output == continuation(want.prompt, len(output))
            assert len(output) <= want.max_tokens
            if len(output) == want.max_tokens:
                assert self.core.finish(request.request_id, "length")
                del self.live[request.request_id]
                self.end(request.request_id)
        self.old_answers.append(result)

    @precondition(lambda self: self.verifier is not None)
    @rule(
        num_turns=st.integers(1, 12),
        seed=st.integers(0, 1000),
        behind=st.booleans(),
        drafts_in=st.booleans(),
    )
    def rotate(self, num_turns, seed, behind, drafts_in):
        """What happens nearly always: plan, draft, verify, commit, again and again."""
        for turn in range(num_turns):
            if not behind:
                self.plan()
            while drafts_in and self.draft_answers:
                self.give_draft_answer(self.draft_answers.pop(0))
            result = self.verifier.run(lambda row_id, k, t=turn: (seed + row_id * t) % (k + 1))
            if result is not None:
                self.answers.append(result)
            if self.answers:
                self.verify_answer()
            if behind:
                self.plan()

    @precondition(lambda self: self.old_answers)
    @rule(data=st.data())
    def verify_answer_again(self, data):
        result = data.draw(st.sampled_from(self.old_answers))
        assert self.core.on_verify_result(result) == []
        self.num_stale += len(result.rows)

    @precondition(lambda self: self.draft_answers)
    @rule(data=st.data(), keep=st.booleans())
    def draft_answer(self, data, keep):
        index = data.draw(st.integers(0, len(self.draft_answers) - 1))
        answer = self.draft_answers[index] if keep else self.draft_answers.pop(index)
        self.give_draft_answer(answer)

    def give_draft_answer(self, answer):
        flight = self.flights.get(answer.batch)
        if flight is not None and flight.plan.step_id == answer.step_id:
            flight.drafts_in = True
        self.core.on_draft_result(answer)

    # -- workers ----------------------------------------------------------------------------

    @precondition(lambda self: self.verifier is not None)
    @rule()
    def lose_verifier(self):
        self.core.verifier_lost()
        self.old_answers += self.answers
        self.answers.clear()
        self.flights.clear()
        self.order.clear()
        self.verifier = self.drafter = None
        self.epoch = 0

    @precondition(lambda self: self.verifier is None)
    @rule()
    def bring_verifier_up(self):
        self.verifier = VerifierDouble(
            num_blocks=self.num_blocks, block_size=BLOCK, max_model_len=CONTEXT
        )
        self.core.verifier_up(self.verifier.info)

    @precondition(lambda self: self.verifier is not None)
    @rule()
    def lose_drafter(self):
        self.core.link_down()
        self.drafter = None
        self.epoch = 0

    @precondition(lambda self: self.verifier is not None)
    @rule()
    def bring_drafter_up(self):
        self.epoch = self.core.epoch + 10 + len(self.ended) + self.num_outputs
        self.drafter = DrafterDouble(self.epoch, max_model_len=self.drafter_context)
        self.core.drafter_up(self.drafter.info, self.epoch)

    @rule(k=st.sampled_from((0, 1, 4)))
    def change_k(self, k):
        self.core.set_mode(replace(self.core.mode, num_draft_tokens=k))

    @rule(num_batches=st.integers(1, 3))
    def change_batches(self, num_batches):
        mode = replace(self.core.mode, num_batches=num_batches)
        if num_batches == self.core.mode.num_batches or (not self.live and not self.flights):
            self.core.set_mode(mode)
        else:
            with pytest.raises(PreconditionError, match=f"{len(self.live)} requests are live"):
                self.core.set_mode(mode)

    # -- always -----------------------------------------------------------------------------

    @invariant()
    def core_equals_model(self):
        self.core.check()
        assert {i: (r.prompt_token_ids, r.max_tokens) for i, r in self.core.requests.items()} == {
            i: (w.prompt, w.max_tokens) for i, w in self.live.items()
        }
        assert all(times == 1 for times in self.ended.values())
        counters = self.core.counters
        assert counters.num_requests == self.num_submitted == len(self.live) + len(self.ended)
        assert sum(counters.num_finished.values()) == len(self.ended)
        assert counters.num_output_tokens == self.num_outputs
        assert counters.num_stale_results == self.num_stale
        assert counters.num_accepted_tokens <= counters.num_draft_tokens
        assert [self.core.in_flight_step(b) for b in range(self.core.mode.num_batches)] == [
            self.flights[b].plan.step_id if b in self.flights else 0
            for b in range(self.core.mode.num_batches)
        ]
        assert list(self.core._verify_queue) == self.order
        assert self.core.is_idle == (not self.live and not self.flights)

    @invariant()
    def phases_follow_the_steps(self):
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
            elif self.order[0] == batch:
                assert request.phase is Phase.VERIFYING
            else:
                assert request.phase is Phase.DRAFTED

    @invariant()
    def queue_is_first_come_first_served(self):
        waiting = [r.arrival for r in self.core._home.waiting]
        assert waiting == sorted(waiting)

    @staticmethod
    def expected_rows(verifier):
        closing = {row_id for plan in verifier.queue for row_id in plan.closes}
        return set(verifier.rows) - closing

    def teardown(self):
        if not hasattr(self, "core"):
            return
        if self.verifier is None:
            self.bring_verifier_up()
        # Nobody starves: each step feeds BUDGET prompt tokens or commits one, preempted or not.
        serial = sum(
            want.max_tokens + 1 + -(-(len(want.prompt) + want.max_tokens) // BUDGET)
            for want in self.live.values()
        )
        steps = 0
        while self.live or self.flights:
            self.plan()
            self.core_equals_model()
            self.phases_follow_the_steps()
            if not self.answers:
                result = self.verifier.run(lambda row_id, k: (row_id * 7 + k) % (k + 1))
                self.answers.append(result)
            self.verify_answer()
            steps += 1
            assert steps <= 2 * serial + 3, "starvation"
        self.plan()
        assert self.core.is_idle
        assert self.core.blocks.num_used == 0
        assert self.core.blocks.num_free == self.num_blocks


TestCoreMachine = CoreMachine.TestCase
TestCoreMachine.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
