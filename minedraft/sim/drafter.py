"""A drafter without a model: knows which tokens its cache holds, and drafts after their cost. Pure.

Its plans run first in, first out. What it must feed before it can draft is what the real one must.
Its own KV pool is taken to be large enough. If scores are asked for it says those of `Output`, and
stops by them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from minedraft.plans import DraftResult, DraftRowResult, Score, StepTiming
from minedraft.selection import temperature_class
from minedraft.sim.labels import Label, Labels
from minedraft.sim.step_costs import both
from minedraft.sim.verifier import Drafted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minedraft.plans import DraftPlan, DraftRow
    from minedraft.sim.devices import Devices
    from minedraft.sim.events import Events
    from minedraft.sim.outputs import Output
    from minedraft.sim.step_costs import StepCosts
    from minedraft.sim.verifier import Drafts
    from minedraft.types import RowId


@dataclass(slots=True)
class _Row:
    """An open row."""

    output: Output | None
    """None: its request has ended."""
    group: int
    """Temperature class."""
    num_cached: int = 0
    """Tokens whose KV is there; may run past the committed length."""
    labels: Labels = field(default_factory=Labels)


class _Fed(NamedTuple):
    """What a step fed before its drafts."""

    able: list[DraftRow]
    """Rows that draft."""
    num_tokens: int
    behind: set[RowId]
    """Rows that need more steps."""


class _Work(NamedTuple):
    """What a step comes to."""

    fed: _Fed
    drafts: Drafts
    labels: list[Label]
    """One per row of the plan."""


class SimDrafter:
    """See the module docstring.

    Args:
        events: Virtual time.
        devices: Where it computes.
        costs: What steps take.
        outputs: By seed of the row: which drafts stand, and what is said of them.
        max_catch_up_tokens: Most committed tokens fed in one step.
        on_packet: Takes drafts for the verifier: source, step, drafts.
        on_result: Told what became of a plan.
    """

    def __init__(
        self,
        events: Events,
        devices: Devices,
        costs: StepCosts,
        outputs: Mapping[int, Output],
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
        self._outputs = outputs
        self._rows: dict[RowId, _Row] = {}
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
        self._rows.clear()
        self._queue.clear()

    def _begin(self) -> None:
        while self._queue and not self._is_busy:
            plan, arrived_ns = self._queue.popleft()
            for row_id in plan.closes:
                self._rows.pop(row_id, None)
            for opened in plan.opens:
                output = self._outputs.get(opened.params.seed)
                self._rows[opened.row_id] = _Row(
                    output, temperature_class(opened.params.temperature)
                )
            if plan.rows:
                self._compute(plan, arrived_ns)

    def _compute(self, plan: DraftPlan, arrived_ns: int) -> None:
        fed = self._catch_up(plan)
        labels = self._labels(plan)  # of earlier drafts
        work = _Work(fed, self._draft(plan, fed.able), labels)
        ks = [drafted.num_drafts for drafted in work.drafts.values()]
        rows_per_depth = [sum(k > d for k in ks) for d in range(max(ks, default=0))]
        context = sum(row.base_len for row in plan.rows)
        durations = both(
            lambda overlapped: self._costs.draft_ns(
                rows_per_depth, fed.num_tokens, context, overlapped=overlapped
            ),
            "draft",
        )
        self._is_busy = True
        self._devices.compute(
            durations,
            partial(self._end, plan, work, arrived_ns, self._events.now_ns),
        )

    def _draft(self, plan: DraftPlan, able: list[DraftRow]) -> Drafts:
        index_of = {planned.row_id: index for index, planned in enumerate(plan.rows)}
        drafts: Drafts = {}
        for planned in able:
            row, k = self._rows[planned.row_id], planned.num_draft_tokens
            scores: tuple[float, ...] = ()
            if plan.score:
                scores = _scores(plan, planned, row, index_of[planned.row_id])
                k = len(scores)
                if row.output is not None and not plan.is_trial:
                    standing = row.output.num_accepted(planned.base_len, k)
                    row.labels.add(planned.base_len, k, standing)
            drafts[planned.row_id] = Drafted(planned.base_len, k, scores)
            row.num_cached = planned.base_len + k - 1  # the last draft is not fed
        return drafts

    def _labels(self, plan: DraftPlan) -> list[Label]:
        """Tell of each row of the plan what became of earlier drafts."""
        if not plan.score:
            return [Label()] * len(plan.rows)
        return [self._rows[row.row_id].labels.tell(row.base_len) for row in plan.rows]

    def _catch_up(self, plan: DraftPlan) -> _Fed:
        """Feed committed tokens within the budget, rows that need little first."""
        able: list[DraftRow] = []
        behind: set[RowId] = set()
        most = budget = min(self._max_catch_up, plan.max_catch_up_tokens or self._max_catch_up)
        needs = []
        for row in plan.rows:
            # Of the last drafts those agree that were committed: all new tokens but the last one.
            num_cached = min(self._rows[row.row_id].num_cached, row.base_len - 1)
            self._rows[row.row_id].num_cached = num_cached
            needs.append((row.base_len - num_cached, row))
        for num_missing, row in sorted(needs, key=lambda need: need[0]):
            num_fed = min(num_missing, budget)
            budget -= num_fed
            self._rows[row.row_id].num_cached += num_fed
            if num_fed < num_missing:
                behind.add(row.row_id)
            elif row.num_draft_tokens:
                able.append(row)
        return _Fed(able, most - budget, behind)

    def _end(self, plan: DraftPlan, work: _Work, arrived_ns: int, started_ns: int) -> None:
        fed, drafts, labels = work
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
                num_draft_tokens=sum(each.num_drafts for each in drafts.values()),
                num_rows=len(drafts),
                timing=timing,
                epoch=plan.epoch,
                num_catch_up_tokens=fed.num_tokens,
                rows=tuple(
                    DraftRowResult(
                        row.row_id,
                        row.base_len,
                        row.row_id in fed.behind,
                        drafts[row.row_id].scores if row.row_id in drafts else (),
                        *label,
                    )
                    for row, label in zip(plan.rows, labels, strict=True)
                    if plan.score or row.row_id not in drafts
                ),
            )
        )
        self._begin()


def _scores(plan: DraftPlan, planned: DraftRow, row: _Row, index: int) -> tuple[float, ...]:
    """Scores of a row's drafts, up to the one that the plan stops it after."""
    k = planned.num_draft_tokens
    if row.output is None:
        scores = (0.0,) * k
    else:
        is_surprisal = plan.score is Score.SURPRISAL
        scores = row.output.scores(planned.base_len, k, is_surprisal=is_surprisal)
    stop, survival = plan.stop, 1.0
    if stop is None:
        return scores
    offset = stop.offsets[index] if stop.offsets else 0.0
    for position, score in enumerate(scores):
        survival *= stop.curves.factor(row.group, position, score, offset)
        if survival < stop.below:
            return scores[: position + 1]
    return scores
