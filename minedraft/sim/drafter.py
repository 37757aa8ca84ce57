"""A drafter without a model: knows which tokens its cache holds, and drafts after their cost. Pure.

Its plans run first in, first out. What it must feed before it can draft is what the real one must.
Its own KV pool is taken to be large enough.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from minedraft.plans import DraftResult, DraftRowResult, StepTiming
from minedraft.sim.step_costs import both

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.plans import DraftPlan, DraftRow
    from minedraft.sim.devices import Devices
    from minedraft.sim.events import Events
    from minedraft.sim.step_costs import StepCosts
    from minedraft.sim.verifier import Drafts
    from minedraft.types import RowId


class _Fed(NamedTuple):
    """What a step fed before its drafts."""

    able: list[DraftRow]
    """Rows that draft."""
    num_tokens: int
    behind: set[RowId]
    """Rows that need more steps."""


class SimDrafter:
    """See the module docstring.

    Args:
        events: Virtual time.
        devices: Where it computes.
        costs: What steps take.
        max_catch_up_tokens: Most committed tokens fed in one step.
        on_packet: Takes drafts for the verifier: source, step, drafts.
        on_result: Told what became of a plan.
    """

    def __init__(
        self,
        events: Events,
        devices: Devices,
        costs: StepCosts,
        *,
        max_catch_up_tokens: int,
        on_packet: Callable[[int, int, Drafts], None],
        on_result: Callable[[DraftResult], None],
    ) -> None:
        self._events = events
        self._devices = devices
        self._costs = costs
        self._max_catch_up = max_catch_up_tokens
        self._on_packet = on_packet
        self._on_result = on_result
        self._num_cached: dict[RowId, int] = {}
        """By row: tokens whose KV is there; may run past the committed length."""
        self._queue: deque[tuple[DraftPlan, int]] = deque()
        """Plans, and when they arrived."""
        self._is_busy = False
        self._last_end_ns = events.now_ns
        self.busy_ns = 0

    def put(self, plan: DraftPlan) -> None:
        """A plan arrives."""
        self._queue.append((plan, self._events.now_ns))
        self._begin()

    def forget(self) -> None:
        """Its link is gone, and with it all rows and plans."""
        self._num_cached.clear()
        self._queue.clear()

    def _begin(self) -> None:
        while self._queue and not self._is_busy:
            plan, arrived_ns = self._queue.popleft()
            for row_id in plan.closes:
                self._num_cached.pop(row_id, None)
            for opened in plan.opens:
                self._num_cached[opened.row_id] = 0
            if plan.rows:
                self._compute(plan, arrived_ns)

    def _compute(self, plan: DraftPlan, arrived_ns: int) -> None:
        fed = self._catch_up(plan)
        able, num_fed = fed.able, fed.num_tokens
        depth = max((row.num_draft_tokens for row in able), default=0)
        rows_per_depth = [sum(row.num_draft_tokens > d for row in able) for d in range(depth)]
        context = sum(row.base_len for row in plan.rows)
        durations = both(
            lambda overlapped: self._costs.draft_ns(
                rows_per_depth, num_fed, context, overlapped=overlapped
            ),
            "draft",
        )
        for row in able:
            # The last draft is not fed.
            self._num_cached[row.row_id] = row.base_len + row.num_draft_tokens - 1
        drafts = {row.row_id: (row.base_len, row.num_draft_tokens) for row in able}
        self._is_busy = True
        self._devices.compute(
            durations,
            partial(self._end, plan, drafts, fed, arrived_ns, self._events.now_ns),
        )

    def _catch_up(self, plan: DraftPlan) -> _Fed:
        """Feed committed tokens within the budget, rows that need little first."""
        able: list[DraftRow] = []
        behind: set[RowId] = set()
        most = budget = min(self._max_catch_up, plan.max_catch_up_tokens or self._max_catch_up)
        needs = []
        for row in plan.rows:
            # Of the last drafts those agree that were committed: all new tokens but the last one.
            num_cached = min(self._num_cached[row.row_id], row.base_len - 1)
            self._num_cached[row.row_id] = num_cached
            needs.append((row.base_len - num_cached, row))
        for num_missing, row in sorted(needs, key=lambda need: need[0]):
            num_fed = min(num_missing, budget)
            budget -= num_fed
            self._num_cached[row.row_id] += num_fed
            if num_fed < num_missing:
                behind.add(row.row_id)
            elif row.num_draft_tokens:
                able.append(row)
        return _Fed(able, most - budget, behind)

    def _end(
        self, plan: DraftPlan, drafts: Drafts, fed: _Fed, arrived_ns: int, started_ns: int
    ) -> None:
        now_ns = self._events.now_ns
        last_end_ns, self._last_end_ns = self._last_end_ns, now_ns
        timing = StepTiming(
            started_unix_ns=started_ns,
            total_ns=now_ns - started_ns,
            forward_ns=now_ns - started_ns,
            idle_ns=started_ns - last_end_ns,
            bubble_ns=max(started_ns - max(last_end_ns, arrived_ns), 0),
        )
        self.busy_ns += timing.total_ns
        self._is_busy = False
        if any(row.num_draft_tokens for row in plan.rows) and not plan.is_trial:
            self._on_packet(plan.epoch, plan.step_id, drafts)
        self._on_result(
            DraftResult(
                step_id=plan.step_id,
                batch=plan.batch,
                num_draft_tokens=sum(count for _, count in drafts.values()),
                num_rows=len(drafts),
                timing=timing,
                epoch=plan.epoch,
                num_catch_up_tokens=fed.num_tokens,
                rows=tuple(
                    DraftRowResult(row.row_id, row.base_len, row.row_id in fed.behind)
                    for row in plan.rows
                    if row.row_id not in drafts
                ),
            )
        )
        self._begin()
