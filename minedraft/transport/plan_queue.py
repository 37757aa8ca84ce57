"""Plans that have arrived and not started, and what each of them waits for. Decides nothing.

Which one runs next is `ready_first`'s decision; here is what has to be awaited for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from minedraft.transport.ready_first import ReadyFirst

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from minedraft.transport.ready_first import Queued

Plan = TypeVar("Plan")
Inputs = TypeVar("Inputs")


@dataclass(slots=True)
class Arrived(Generic[Plan, Inputs]):
    """A plan; times are perf_counter_ns."""

    plan: Plan
    arrived_ns: int
    ready_ns: int
    """When it had what it waited for, or had waited long enough; `arrived_ns` if for nothing."""
    inputs: Inputs | None = None
    """What it waited for."""


class PlanQueue(Generic[Plan, Inputs]):
    """See the module docstring.

    Args:
        group: Of the session; what plans wait for is awaited in it.
        capacity: Most plans held; whoever puts another one waits.
        lane: See `ready_first`.
        inputs: What a plan needs before it can start, or None: nothing. Called when the plan
            arrives, and bounds its own wait.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        capacity: int,
        lane: Callable[[Plan], Hashable | None],
        inputs: Callable[[Plan], Coroutine[Any, Any, Inputs | None] | None],
    ) -> None:
        self._group = group
        self._lane = lane
        self._inputs = inputs
        self._room = asyncio.Semaphore(capacity)
        self._order: ReadyFirst[Arrived[Plan, Inputs]] = ReadyFirst()
        self._changed = asyncio.Event()
        self._waiting: set[asyncio.Task[Inputs | None]] = set()

    async def put(self, plan: Plan) -> None:
        """Add a plan that arrives now."""
        await self._room.acquire()
        now_ns = time.perf_counter_ns()
        inputs = self._inputs(plan)
        queued = self._order.put(
            Arrived(plan, now_ns, now_ns), self._lane(plan), is_ready=inputs is None
        )
        if inputs is None:
            self._changed.set()
            return
        try:
            # The coroutine itself is the task: one around it that is cancelled before it begins
            # would leave it unawaited.
            task = self._group.create_task(inputs, name="session.inputs")
        except RuntimeError:  # the session ends just now
            inputs.close()
            raise
        self._waiting.add(task)
        task.add_done_callback(partial(self._has_inputs, queued))

    async def get(self) -> Arrived[Plan, Inputs]:
        """Wait for the plan that runs next and take it."""
        while (arrived := self._order.take()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._room.release()
        return arrived

    def cancel(self) -> None:
        """Wait for nothing any more: the session is over."""
        for task in self._waiting:
            task.cancel()

    def _has_inputs(
        self, queued: Queued[Arrived[Plan, Inputs]], task: asyncio.Task[Inputs | None]
    ) -> None:
        self._waiting.discard(task)
        if task.cancelled() or task.exception() is not None:
            return  # the session ends
        queued.plan.inputs = task.result()
        queued.plan.ready_ns = time.perf_counter_ns()
        queued.is_ready = True
        self._changed.set()
