"""A verifier without a model: takes plans as the real one does, and answers after their cost. Pure.

Plans run ready-first (docs/adr/0022), a few are taken while one runs, and what it says of each is
what the real one says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.plans import RowResult, StepBegun, StepTiming, VerifyResult
from minedraft.selection import Scored, select, temperature_class
from minedraft.sim.step_costs import both
from minedraft.transport.ready_first import ReadyFirst

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minedraft.plans import VerifyPlan, VerifyRow
    from minedraft.sim.devices import Devices
    from minedraft.sim.events import Events
    from minedraft.sim.outputs import Output
    from minedraft.sim.step_costs import StepCosts
    from minedraft.transport.ready_first import Queued
    from minedraft.types import RowId


class Drafted(NamedTuple):
    """What a packet carries of a row."""

    base_len: int
    """Committed length."""
    num_drafts: int
    scores: tuple[float, ...] = ()
    """Of each draft; none if they were not asked for."""


Drafts = dict["RowId", Drafted]
"""What a packet carries."""

_NUM_PREPARED: Final = 2
"""Plans that are taken while one runs: the session prepares one, its queue of one holds another."""


@dataclass(slots=True)
class _Arrived:
    plan: VerifyPlan
    arrived_ns: int
    ready_ns: int
    drafts: Drafts = field(default_factory=dict)


class SimVerifier:
    """See the module docstring.

    Args:
        events: Virtual time.
        devices: Where it computes.
        costs: What steps take.
        outputs: By seed of the row: what the target writes.
        on_begun: Told which step begins.
        on_result: Told what became of a step.
    """

    def __init__(
        self,
        events: Events,
        devices: Devices,
        costs: StepCosts,
        outputs: Mapping[int, Output],
        *,
        on_begun: Callable[[StepBegun], None],
        on_result: Callable[[VerifyResult], None],
    ) -> None:
        self._events = events
        self._devices = devices
        self._costs = costs
        self._outputs = outputs
        self._on_begun = on_begun
        self._on_result = on_result
        self._rows: dict[RowId, tuple[Output | None, int]] = {}
        """With temperature class; None: its request had ended before its first step began."""
        self._order: ReadyFirst[_Arrived] = ReadyFirst()
        self._waiting: dict[tuple[int, int], Queued[_Arrived]] = {}
        """By source and step: plans whose drafts have not come."""
        self._prepared: deque[_Arrived] = deque()
        self._is_busy = False
        self._last_end_ns = events.now_ns
        self.busy_ns = 0

    def put(self, plan: VerifyPlan) -> None:
        """A plan arrives."""
        now_ns, key = self._events.now_ns, (plan.source, plan.step_id)
        arrived = _Arrived(plan, now_ns, now_ns)
        lane = plan.batch if plan.rows else None
        queued = self._order.put(arrived, lane, is_ready=plan.source == 0)
        if plan.source:
            self._waiting[key] = queued
            self._events.after(plan.draft_timeout_ns, partial(self._give_up, key))
        self._take()

    def receive(self, source: int, step_id: int, drafts: Drafts) -> None:
        """A packet arrives; one that comes too late is dropped.

        None comes before its plan: both plans of a step travel equally long.
        """
        queued = self._waiting.pop((source, step_id), None)
        if queued is not None:
            queued.plan.drafts = drafts
            self._make_ready(queued)

    def forget(self, source: int) -> None:
        """The link of a source is gone: nothing waits for its drafts."""
        for key in [key for key in self._waiting if key[0] == source]:
            self._make_ready(self._waiting.pop(key))

    def _give_up(self, key: tuple[int, int]) -> None:
        queued = self._waiting.pop(key, None)
        if queued is not None:
            self._make_ready(queued)

    def _make_ready(self, queued: Queued[_Arrived]) -> None:
        queued.plan.ready_ns, queued.is_ready = self._events.now_ns, True
        self._take()

    def _take(self) -> None:
        """Take the plans that run next, and begin the first of them if the device is free."""
        while len(self._prepared) < _NUM_PREPARED and (arrived := self._order.take()) is not None:
            if arrived.plan.rows:
                self._on_begun(StepBegun(arrived.plan.step_id, arrived.plan.batch))
            self._prepared.append(arrived)
            if not self._is_busy:
                self._begin()

    def _begin(self) -> None:
        while self._prepared and not self._is_busy:
            arrived = self._prepared.popleft()
            plan = arrived.plan
            for row_id in plan.closes:
                self._rows.pop(row_id, None)
            for opened in plan.opens:
                group = temperature_class(opened.params.temperature)
                self._rows[opened.row_id] = self._outputs.get(opened.params.seed), group
            if plan.rows:
                self._compute(arrived)

    def _compute(self, arrived: _Arrived) -> None:
        plan, num_stale, num_tokens, context = arrived.plan, 0, 0, 0
        results = []
        for row, drafted, count in zip(plan.rows, *self._select(arrived), strict=True):
            result = self._verify(row, count)
            num_stale += row.num_draft_tokens > 0 and drafted is None
            num_tokens += row.num_feed + result.num_draft_tokens
            context += row.num_computed + row.num_feed
            results.append(result)
        num_rows = len(results)
        durations = both(
            lambda overlapped: self._costs.verify_ns(
                num_tokens, num_rows, context, overlapped=overlapped
            ),
            "verify",
        )
        self._is_busy = True
        started_ns = self._events.now_ns
        self._devices.compute(
            durations, partial(self._end, arrived, tuple(results), num_stale, started_ns)
        )

    def _select(self, arrived: _Arrived) -> tuple[list[Drafted | None], list[int]]:
        """Drafts of each row, if they came, and how many of them are verified."""
        plan = arrived.plan
        drafts = [
            drafted if drafted is not None and drafted.base_len == row.base_len else None
            for row, drafted in ((row, arrived.drafts.get(row.row_id)) for row in plan.rows)
        ]
        counts = [
            min(drafted.num_drafts, row.num_draft_tokens) if drafted is not None else 0
            for row, drafted in zip(plan.rows, drafts, strict=True)
        ]
        if plan.selection is not None:
            scored = [
                Scored(index, self._rows[row.row_id][1], drafted.scores[: counts[index]])
                for index, (row, drafted) in enumerate(zip(plan.rows, drafts, strict=True))
                if drafted is not None
            ]
            for each, count in zip(scored, select(scored, plan.selection), strict=True):
                counts[each.row] = count
        return drafts, counts

    def _verify(self, row: VerifyRow, usable: int) -> RowResult:
        if row.num_computed + row.num_feed < row.base_len:
            return RowResult(row.row_id, row.base_len, ())
        (output, _), first = self._rows[row.row_id], row.base_len
        if output is None:
            return RowResult(row.row_id, row.base_len, (0,), usable)
        num_accepted = output.num_accepted(first, usable) if usable else 0
        token_ids = tuple([output.token(first + i) for i in range(num_accepted + 1)])
        return RowResult(row.row_id, row.base_len, token_ids, usable, num_accepted)

    def _end(
        self, arrived: _Arrived, rows: tuple[RowResult, ...], num_stale: int, started_ns: int
    ) -> None:
        now_ns, plan = self._events.now_ns, arrived.plan
        last_end_ns, self._last_end_ns = self._last_end_ns, now_ns
        timing = StepTiming(
            started_unix_ns=started_ns,
            total_ns=now_ns - started_ns,
            forward_ns=now_ns - started_ns,
            wait_ns=max(arrived.ready_ns - max(last_end_ns, arrived.arrived_ns), 0),
            idle_ns=started_ns - last_end_ns,
            bubble_ns=max(started_ns - max(last_end_ns, arrived.ready_ns), 0),
        )
        self.busy_ns += timing.total_ns
        self._is_busy = False
        self._on_result(VerifyResult(plan.step_id, plan.batch, rows, timing, num_stale))
        self._begin()
        self._take()
