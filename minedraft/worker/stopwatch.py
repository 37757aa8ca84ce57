"""Times one device step and its parts, in wall and CPU time. Runs on the device thread."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from minedraft.plans import StepTiming

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stopwatch:
    """Times the steps of one device and the idle time between them.

    A step is measured between `start` and `stop`; in between `measure("forward")` and
    `measure("sample")` add to the parts.
    """

    def __init__(self) -> None:
        self._last_end_ns: int | None = None
        self._parts: dict[str, int] = {}
        self._start_ns = self._start_cpu_ns = self._start_unix_ns = 0

    def worked(self) -> None:
        """Work that belongs to no step is over: until now the device was not idle."""
        self._last_end_ns = time.perf_counter_ns()

    def start(self) -> None:
        """A step begins."""
        self._parts = {"forward": 0, "sample": 0}
        self._start_unix_ns = time.time_ns()
        self._start_cpu_ns = time.thread_time_ns()
        self._start_ns = time.perf_counter_ns()

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self._parts[part] += time.perf_counter_ns() - begin

    def stop(self, *, plan_ns: int, drafts_ns: int | None) -> StepTiming:
        """The step is over.

        Args:
            plan_ns: When its plan arrived (perf_counter).
            drafts_ns: When its drafts arrived; None if it had none to wait for.
        """
        now = time.perf_counter_ns()
        last_end = self._last_end_ns if self._last_end_ns is not None else self._start_ns
        self._last_end_ns = now
        ready = max(plan_ns, drafts_ns if drafts_ns is not None else plan_ns)
        free_and_planned = max(last_end, plan_ns)
        return StepTiming(
            started_unix_ns=self._start_unix_ns,
            total_ns=now - self._start_ns,
            forward_ns=self._parts["forward"],
            sample_ns=self._parts["sample"],
            wait_ns=max(ready - free_and_planned, 0),
            idle_ns=self._start_ns - last_end,
            cpu_ns=time.thread_time_ns() - self._start_cpu_ns,
            bubble_ns=max(self._start_ns - max(last_end, ready), 0),
        )
