"""The checks of `sched.py`, in the order of the table of docs/results.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sched_checks import before, simulated
from sched_checks.check import Check

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, Check] = {
    "third_batch": Check(
        simulated.third_batch,
        simulated.third_batch_lines,
        ("simulated, t = 1.5 V: three batches and two drafters over two and one",),
    ),
    "speed": Check(
        simulated.speed,
        simulated.speed_lines,
        ("100,000 simulated steps of 2 x 8 with the real core",),
    ),
    "plan_cost": Check(
        before.plan_cost,
        before.plan_cost_lines,
        ("plan and commit at 2 x 32 and 2 x 128 over the commit before",),
    ),
    "memory": Check(before.memory, before.memory_lines, ("coordinator memory, 2,000 requests",)),
}
"""By name."""
