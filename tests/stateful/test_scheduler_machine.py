"""One batch stepped under random blocks, budgets and k equals a ledger of what each one needs.

Nobody owns anything here but the ledger: the pool is a coin that the ledger tosses first, so it
knows who sits out, and how many drafts fit. The rows of every step must be exactly what the ledger
says.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from minedraft.policy_options import PolicyOptions
from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.decider import Decider
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.services.coordinator.core.scheduler import Scheduler
from minedraft.services.coordinator.core.step_view import Limits
from minedraft.types import RequestId, RowId, RowParams

CONTEXT, DRAFTER_CONTEXT = 60, 40


@dataclass
class Ledger:
    """What the model knows of one request."""

    tokens: list[int]
    max_len: int
    fed: int = 0
    decoding: bool = False
    verifier_knows: int = 0
    drafter_knows: int = 0


class Coins:
    """A pool: who sits out, and the drafts that fit for everybody else."""

    def __init__(self, blocked: set[int], num_fit: int) -> None:
        self.blocks = PrefixCache(0, 4)
        self.blocked, self.num_fit = blocked, num_fit
        self.calls: list[tuple[str, int, int]] = []
        self.in_flight = {}

    def allocate(self, request, num_positions):
        self.calls.append(("committed", request.arrival, num_positions))
        return request.arrival not in self.blocked

    def allocate_drafts(self, request, k):
        self.calls.append(("drafts", request.arrival, k))
        return min(k, self.num_fit)


class SchedulerMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(budget=st.integers(1, 12))
    def start(self, budget):
        self.budget = budget
        self.requests: list[Request] = []
        self.ledgers: list[Ledger] = []

    @rule(num_prompt=st.integers(1, 30), max_tokens=st.integers(1, 25))
    def admit(self, num_prompt, max_tokens):
        index = len(self.requests)
        prompt = tuple(range(num_prompt))
        request = Request(RequestId(f"r{index}"), prompt, RowParams(), max_tokens, arrival=index)
        request.advance(Event.ADMIT)
        request.row_id = RowId(index + 1)
        self.requests.append(request)
        self.ledgers.append(Ledger(list(prompt), num_prompt + max_tokens))

    @rule(
        k=st.integers(0, 5),
        blocked=st.sets(st.integers(0, 5)),
        num_fit=st.integers(0, 5),
        accepted=st.integers(0, 5),
    )
    def step(self, k, blocked, num_fit, accepted):  # noqa: C901 the whole rule, read from top to bottom
        live = [i for i, r in enumerate(self.requests) if not r.is_finished]
        limits = Limits(k, self.budget, CONTEXT, DRAFTER_CONTEXT)
        want_rows, want_draft_rows, want_opens, want_draft_opens = [], [], [], []
        asked, asked_drafts = [], []
        for i in [i for i in live if self.ledgers[i].decoding]:
            entry = self.ledgers[i]
            length = len(entry.tokens)
            mine = max(0, min(k, entry.max_len - length - 1, CONTEXT - length - 1))
            mine = max(0, min(mine, DRAFTER_CONTEXT - length))
            asked.append(("committed", i, length))
            if i not in blocked:
                if mine:
                    asked_drafts.append(("drafts", i, mine))
                mine = min(mine, num_fit)
                want_rows.append((i, length, length - 1, 1, mine, entry.verifier_knows))
                if mine:
                    want_draft_rows.append((i, length, mine, entry.drafter_knows or length))
                    if not entry.drafter_knows:
                        want_draft_opens.append(i)
                    entry.drafter_knows = length
                entry.verifier_knows = length
        budget = self.budget
        for i in [i for i in live if not self.ledgers[i].decoding]:
            entry = self.ledgers[i]
            length = len(entry.tokens)
            if budget == 0:
                break
            chunk = min(budget, length - entry.fed)
            asked.append(("committed", i, entry.fed + chunk))
            if i in blocked:
                continue
            budget -= chunk
            if not entry.verifier_knows:
                want_opens.append(i)
                entry.verifier_knows = length
            want_rows.append((i, length, entry.fed, chunk, 0, entry.verifier_knows))
            if k and not entry.drafter_knows and length < DRAFTER_CONTEXT:
                want_draft_opens.append(i)
                want_draft_rows.append((i, length, 0, length))
                entry.drafter_knows = length
            entry.fed += chunk

        pool = Coins(blocked, num_fit)
        rows = Scheduler(Decider("fixed", PolicyOptions()), pool, Costs(), Estimator()).schedule(
            0, [self.requests[i] for i in live], limits
        )
        assert pool.calls == asked + asked_drafts
        assert [
            (
                r.row_id - 1,
                r.base_len,
                r.num_computed,
                r.num_feed,
                r.num_draft_tokens,
                r.base_len - len(r.new_token_ids),
            )
            for r in rows.verify_rows
        ] == want_rows
        assert [
            (r.row_id - 1, r.base_len, r.num_draft_tokens, r.base_len - len(r.new_token_ids))
            for r in rows.draft_rows
        ] == want_draft_rows
        assert [o.row_id - 1 for o in rows.verify_opens] == want_opens
        assert [o.row_id - 1 for o in rows.draft_opens] == want_draft_opens
        assert [r.arrival for r in rows.requests.values()] == [row[0] for row in want_rows]
        for i, length, computed, chunk, mine, _known in want_rows:
            if computed + chunk == length:
                self.commit(i, min(accepted, mine) + 1)

    def commit(self, i, count):
        request, entry = self.requests[i], self.ledgers[i]
        request.commit((7,) * count)
        entry.tokens += [7] * count
        entry.decoding = True
        assert request.phase is Phase.READY
        assert len(entry.tokens) <= entry.max_len
        if len(entry.tokens) == min(entry.max_len, CONTEXT):
            request.advance(Event.FINISH)


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
