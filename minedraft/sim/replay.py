"""Replays the measurements of a bench and sets the simulated figures beside the measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from minedraft.sim.bench_costs import costs_of
from minedraft.sim.report import Report, report
from minedraft.sim.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.admin import Span
    from minedraft.sim.bench_file import BenchMode
    from minedraft.sim.setup import Setup

ALL_CORES: Final = "ar_all"
"""The measurement with other cores: its costs are its own."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One measurement, and what the simulator makes of it."""

    measured: BenchMode
    simulated: Report
    spans: tuple[Span, ...]

    @property
    def tokens_over(self) -> float:
        """Simulated tokens/s over measured ones; 0 where nothing was steady."""
        return _over(self.simulated.steady.tokens_per_s, self.measured.tokens_per_s)

    @property
    def step_over(self) -> float:
        """Simulated step time over the measured one; 0 where nothing was steady."""
        return _over(self.simulated.steady.step_ms, self.measured.step_ms)

    def to_json(self) -> dict[str, Any]:
        """Figures by name."""
        return {
            "measured": {
                "tokens_per_s": self.measured.tokens_per_s,
                "step_ms_p50": self.measured.step_ms,
                "verify_ms_p50": self.measured.verify_ms,
                "draft_ms_p50": self.measured.draft_ms,
            },
            "simulated": self.simulated.to_json(),
            "tokens_over_measured": self.tokens_over,
            "step_over_measured": self.step_over,
        }


def replay(modes: Mapping[str, BenchMode], setup: Setup) -> dict[str, Replay]:
    """Simulate every measurement of a bench under its own requests.

    Args:
        modes: Of the bench file.
        setup: Hops, pool and seed; the rest is the bench's.

    Raises:
        ConfigError: the bench has no steps to take costs from.
    """
    shared = [mode for name, mode in modes.items() if name != ALL_CORES]
    found = {}
    for name, measured in modes.items():
        own = replace(
            setup,
            mode=measured.mode,
            num_drafters=1 if measured.mode.num_draft_tokens else 0,
            costs=costs_of([measured] if name == ALL_CORES else shared, own=measured),
            acceptance=measured.acceptance,
        )
        simulation = Simulation(own, measured.load)
        simulation.run()
        found[name] = Replay(measured, report(simulation), simulation.timeline.spans())
    return found


def _over(simulated: float, measured: float) -> float:
    return simulated / measured if measured else 0.0
