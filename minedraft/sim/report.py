"""The figures of a simulation and their JSON form. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from minedraft.admin import ShapeStatus
from minedraft.bench.steady import Steady, measure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minedraft.sim.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Report:
    """What a simulation came to; durations are virtual."""

    shape: str
    """Batches x requests, and k."""
    num_drafters: int
    num_requests: int
    num_refused: int
    finished: Mapping[str, int]
    """By reason."""
    num_unfinished: int
    """Requests that had not ended when the simulation did."""
    duration_s: float
    num_steps: int
    num_output_tokens: int
    tokens_per_s: float
    """Over the whole run, prefill and thin ends included."""
    steady: Steady
    """Of full steps without prompt tokens, as `minedraft bench` measures."""
    acceptance_rate: float
    tokens_per_row_step: float
    """Committed tokens per row verified with drafts; 0 without drafts."""
    verifier_busy: float
    """Share of the time, 0..1."""
    drafters_busy: float
    ttft_ms_p50: float
    ttft_ms_p99: float
    tpot_ms_p50: float
    e2e_ms_p50: float
    e2e_ms_p99: float
    longest_gap_ms: float
    """Longest time between two deltas of a request."""
    last_shape: str
    """How requests rotated at the end."""
    num_shape_switches: int
    num_rotating_steps: int
    """Steps with several batches while as many requests ran."""
    num_fallback_steps: int
    """Those of them at which one was empty."""
    num_preemptions: int
    num_stale_drafts: int

    def to_json(self) -> dict[str, Any]:
        """Figures by name."""
        return asdict(self)


def report(simulation: Simulation) -> Report:
    """Sum up a simulation."""
    setup, counters = simulation.setup, simulation.core.counters
    served = list(simulation.served.values())
    mode = setup.mode
    duration_ns = max(simulation.duration_ns, 1)
    drafts = counters.num_drafts
    started = [each for each in served if each.first_ns]
    ended = [each for each in started if each.reason not in {"", "abort"}]
    ttft = [each.first_ns - each.arrived_ns for each in started]
    e2e = [each.last_ns - each.arrived_ns for each in ended]
    tpot = [
        (each.last_ns - each.first_ns) / (each.num_output_tokens - 1)
        for each in ended
        if each.num_output_tokens > 1
    ]
    drafters_ns = sum(drafter.busy_ns for drafter in simulation.drafters.values())
    return Report(
        shape=f"{mode.num_batches} x {mode.max_batch_size}, k = {mode.num_draft_tokens}",
        num_drafters=setup.num_drafters,
        num_requests=len(served),
        num_refused=simulation.num_refused,
        finished=dict(sorted(counters.num_finished.items())),
        num_unfinished=sum(not each.reason for each in served),
        duration_s=duration_ns / 1e9,
        num_steps=counters.num_steps,
        num_output_tokens=counters.num_output_tokens,
        tokens_per_s=counters.num_output_tokens / (duration_ns / 1e9),
        steady=measure(simulation.timeline.spans(), batch=mode.max_batch_size),
        acceptance_rate=_share(counters.num_accepted_tokens, counters.num_draft_tokens),
        tokens_per_row_step=1 + _share(counters.num_accepted_tokens, drafts) if drafts else 0.0,
        verifier_busy=simulation.verifier.busy_ns / duration_ns,
        drafters_busy=drafters_ns / duration_ns / max(setup.num_drafters, 1),
        ttft_ms_p50=percentile_ms(ttft, 0.5),
        ttft_ms_p99=percentile_ms(ttft, 0.99),
        tpot_ms_p50=percentile_ms(tpot, 0.5),
        e2e_ms_p50=percentile_ms(e2e, 0.5),
        e2e_ms_p99=percentile_ms(e2e, 0.99),
        longest_gap_ms=max((each.longest_gap_ns for each in served), default=0) / 1e6,
        last_shape=ShapeStatus(*simulation.core.shaper.shape).name,
        num_shape_switches=counters.num_shape_switches,
        num_rotating_steps=counters.num_rotating_steps,
        num_fallback_steps=counters.num_fallback_steps,
        num_preemptions=counters.num_preemptions,
        num_stale_drafts=counters.num_stale_drafts,
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def percentile_ms(values_ns: Sequence[float], share: float) -> float:
    """Interpolate between the two nearest values, in ms; 0 of none."""
    if not values_ns:
        return 0.0
    ordered = sorted(values_ns)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (place - low)) / 1e6
