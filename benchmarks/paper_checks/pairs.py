"""The pairs of MineDraft's tables, as the simulator has them: shapes by roofline, eager launches.

At one k the rotation over turns does not depend on acceptance: both sides give as many tokens per
step. So nothing is assumed of acceptance but where k is chosen, and of the cards only their class:
which card stood behind which table is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from minedraft.capacity.acceptance import assumed
from minedraft.capacity.device import DEVICES
from minedraft.capacity.known_models import model_of
from minedraft.capacity.model_shape import ModelShape
from minedraft.capacity.roofline import EAGER, RooflineCosts
from minedraft.sim.load import Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.report import report
from minedraft.sim.setup import Setup
from minedraft.sim.simulation import Simulation
from minedraft.types import Mode

if TYPE_CHECKING:
    from minedraft.sim.report import Report

CARDS = ("A100", "L40S")
KS = (1, 2, 3, 4, 5)
M, PROMPT, OUTPUT = 16, 256, 256
TIMES = 2
"""Requests over the places of the rotation, all there at once."""
VICUNA = ModelShape("Vicuna-33B", 6656, 17920, 60, 52, 52, 128, 32_000, is_tied=False, max_len=2048)
"""A Llama of 33B: huggingface.co/lmsys/vicuna-33b-v1.3."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target on four devices, and a drafter on a fifth."""

    name: str
    target: ModelShape
    drafter: ModelShape

    @property
    def acceptance(self) -> float:
        """By the planner's default curve."""
        return assumed(self.drafter, self.target)

    def costs(self, card: str, launch: str = EAGER) -> RooflineCosts:
        """What steps cost on a card."""
        device = DEVICES[card]
        return RooflineCosts(self.target, device, 4, self.drafter, device, launch)


QWEN = model_of("Qwen3-32B")
PAIRS = {
    pair.name: pair
    for pair in (
        *(
            Pair(f"Qwen3-32B / {size}", QWEN, model_of(size, QWEN.name))
            for size in ("0.6B", "1.7B", "4B", "8B")
        ),
        Pair(
            "Llama-3.3-70B-AWQ / 8B",
            model_of("Llama-3.3-70B:int4"),
            model_of("Llama-3.1-8B"),
        ),
        Pair(
            "Vicuna-33B / EAGLE",
            VICUNA,
            replace(VICUNA, name="EAGLE", num_layers=1, is_tied=True),
        ),
    )
}


@cache
def simulate(
    pair: str,
    card: str,
    num_batches: int,
    m: int,
    k: int,
    *,
    num_samples: int = 1,
    prompt: int = PROMPT,
) -> Report:
    """Simulate a closed load, all requests at once."""
    places = num_batches * m
    num = max(TIMES * 2 * M, TIMES * places) // num_samples
    setup = Setup(
        mode=Mode(num_batches, m, k, "fixed"),
        costs=PAIRS[pair].costs(card),
        acceptance=AcceptanceModel((PAIRS[pair].acceptance,)),
        num_blocks=places * 64,
        prefill_budget_tokens=2048,
        trial_s=1.0,
        seed=1,
    )
    arrivals = tuple(Arrival(prompt, OUTPUT, num_samples=num_samples) for _ in range(num))
    simulation = Simulation(setup, Load(arrivals))
    simulation.run()
    return report(simulation)


def throughput(
    pair: str, card: str, num_batches: int, m: int, k: int, *, n: int = 1, prompt: int = PROMPT
) -> float:
    """Tokens per second of full steps without prompts, as the paper counts decode steps."""
    return simulate(pair, card, num_batches, m, k, num_samples=n, prompt=prompt).steady.tokens_per_s


def latency(pair: str, card: str, num_batches: int, m: int, k: int) -> float:
    """Makespan per request, s: what the paper calls latency."""
    found = simulate(pair, card, num_batches, m, k)
    return found.duration_s / found.num_requests
