"""What is simulated, all but the load. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.sim.outputs import AcceptanceModel
from minedraft.sim.step_costs import LinearCosts
from minedraft.types import Mode

if TYPE_CHECKING:
    from minedraft.sim.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Setup:
    """See the module docstring."""

    mode: Mode = field(default_factory=lambda: Mode(2, 8, 4))
    num_drafters: int = 1
    costs: StepCosts = field(default_factory=LinearCosts)
    acceptance: AcceptanceModel = field(default_factory=AcceptanceModel)
    hop_ns: int = 300_000
    """A message between coordinator and worker."""
    link_ns: int = 200_000
    """A packet between drafter and verifier."""
    client_ns: int = 1_000_000
    """In a closed loop: from the end of a request to the next one."""
    num_blocks: int = 8192
    """KV blocks of the target's pool."""
    block_size: int = 16
    max_model_len: int = 32_768
    prefill_budget_tokens: int = 512
    prefill_stall: float = 1.5
    max_catch_up_tokens: int = 512
    prefix_cache: bool = True
    assignment: str = "balanced"
    trial_s: float = 0.0
    """Device time of trial steps before the load begins, as a service makes them while idle."""
    max_waiting: int = 100_000
    """Longest queue."""
    seed: int = 0
