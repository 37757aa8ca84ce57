"""Simulates a candidate: the coordinator's own scheduler, its costs, Poisson arrivals. Pure.

The population is there at the start, each request with a part of its answer left, so that nothing
must be waited for. What counts is the requests that arrive after that.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from minedraft.capacity.price import LINK_SHARE, prefill_budget
from minedraft.sim.load import Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.report import percentile_ms
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.capacity.question import Question
    from minedraft.capacity.search import Candidate
    from minedraft.plans import VerifyResult
    from minedraft.services.coordinator.core.outcome import Outcome

MAX_ROW_STEPS: Final = 40_000
"""Rows times steps of one simulation: one or two seconds of a core."""
_TIMES: Final = 2.0
"""Requests that arrive, over those under way."""
_GRACE: Final = 3.0
"""Times a first token's usual delay that it may take."""
_FEWEST, _SHORT_PROMPT = 24, 16
_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What the simulator says of a candidate at the rate it should carry."""

    begun: float
    """Share of the requests that had their first token, or were about to, when the last one came;
    far under 1 the queue grew."""
    tpot_ms_p50: float
    tpot_ms_p95: float
    ttft_ms_p50: float
    ttft_ms_p95: float
    num_requests: int


def confirm(
    candidate: Candidate, question: Question, *, seed: int = 1,
    told: Callable[[float], None] = lambda _share: None,
) -> Confirmed:  # fmt: skip
    """Simulate one group of a candidate at its share of the carried rate.

    Args:
        candidate: Of the closed form.
        question: What was asked.
        seed: Of arrivals and acceptance.
        told: Called now and then with the share that is done.
    """
    layout, usual = candidate.layout, candidate.usual
    rate = candidate.carried_rate / layout.num_groups
    places = layout.num_batches * candidate.batch_size
    seconds_each = (usual.ttft_ms + usual.tpot_ms * question.output_tokens) / 1e3
    running = max(min(math.ceil(rate * seconds_each), places), 1)
    load, last_ns = _load(question, running, rate, usual.tokens, seed)
    budget = prefill_budget(usual)
    setup = Setup(
        mode=Mode(layout.num_batches, candidate.batch_size, layout.k, "fixed"),
        num_drafters=max(layout.num_drafters, 1) if layout.k else 0,
        costs=layout.costs(question),
        acceptance=AcceptanceModel((layout.drafter.acceptance if layout.drafter else 0.0,)),
        hop_ns=round(question.hop_ms * 1e6),
        link_ns=round(question.hop_ms * 1e6 * LINK_SHARE),
        num_blocks=places * (question.num_places // _BLOCK + 3),
        block_size=_BLOCK,
        max_model_len=question.num_places + 1,
        prefill_budget_tokens=budget,
        max_catch_up_tokens=budget,
        prefix_cache=False,
        trial_s=1.0,
        seed=seed,
    )
    num_ended, last_told = 0, 0

    def commit(result: VerifyResult, outcome: Outcome) -> None:
        nonlocal num_ended, last_told
        del result
        num_ended += outcome.reason is not None
        if num_ended - last_told >= len(load.arrivals) // 50:
            last_told = num_ended
            told(num_ended / len(load.arrivals))

    simulation = Simulation(setup, load, on_commit=commit)
    simulation.run(max_steps=MAX_ROW_STEPS)
    counted = [each for each in simulation.served.values() if each.arrival.arrival_ns]
    ended = [each for each in counted if each.reason == "length"]
    tpot = [(each.last_ns - each.first_ns) / (each.num_output_tokens - 1) for each in ended]
    ttft = [each.first_ns - each.arrived_ns for each in counted if each.first_ns]
    grace_ns = _GRACE * usual.ttft_ms * 1e6
    late = sum(each.first_ns > simulation.begin_ns + last_ns + grace_ns for each in counted)
    unserved = sum(not each.first_ns for each in counted)
    return Confirmed(
        begun=1 - (late + unserved) / len(counted),
        tpot_ms_p50=percentile_ms(tpot, 0.5),
        tpot_ms_p95=percentile_ms(tpot, 0.95),
        ttft_ms_p50=percentile_ms(ttft, 0.5),
        ttft_ms_p95=percentile_ms(ttft, 0.95),
        num_requests=len(counted),
    )


def _load(
    question: Question, running: int, rate: float, tokens: float, seed: int
) -> tuple[Load, int]:
    """Requests that run at the start, and those that arrive; when the last one does."""
    chance = random.Random(seed)
    output = question.output_tokens
    steps = output / tokens
    most = max(round((MAX_ROW_STEPS - running * steps / 2) / steps), _FEWEST)
    num_later = min(max(round(_TIMES * running), _FEWEST), most)
    arrivals = [
        Arrival(min(_SHORT_PROMPT, question.prompt_tokens), chance.randint(1, output))
        for _ in range(running)
    ]
    gaps = [chance.expovariate(1.0) for _ in range(num_later)]
    scale = num_later / rate / sum(gaps) * 1e9  # so that the mean rate is exact
    times = [max(round(at * scale), 1) for at in accumulate(gaps)]
    arrivals += [
        Arrival(question.prompt_tokens, output, arrival_ns=arrival_ns) for arrival_ns in times
    ]
    return Load(tuple(arrivals)), times[-1]
