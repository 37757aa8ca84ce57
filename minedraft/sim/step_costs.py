"""What steps cost a simulated device, where nothing was measured: see `shapes.StepCosts`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.shapes import StepCosts
from minedraft.sim.devices import Durations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FlatCosts", "LinearCosts", "StepCosts", "both"]


@dataclass(frozen=True, slots=True)
class LinearCosts:
    """Straight lines: a base, and so much per token."""

    verify_base_ns: float = 30e6
    verify_token_ns: float = 0.5e6
    draft_base_ns: float = 5e6
    """Of each draft token, however many rows."""
    draft_token_ns: float = 0.1e6
    slowdown: float = 1.15
    """Of both, while the other device computes."""

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float:
        """See `StepCosts`."""
        del num_rows, context
        alone = self.verify_base_ns + self.verify_token_ns * num_tokens
        return alone * (1 + overlapped * (self.slowdown - 1))

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float:
        """See `StepCosts`."""
        del context
        depth = max(len(rows_per_depth), 1)
        num_tokens = num_catch_up_tokens + sum(rows_per_depth[1:])
        alone = self.draft_base_ns * depth + self.draft_token_ns * num_tokens
        return alone * (1 + overlapped * (self.slowdown - 1))


@dataclass(frozen=True, slots=True)
class FlatCosts:
    """V and t, whatever a step holds."""

    verify: float
    draft: float

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float:
        """See `StepCosts`."""
        del num_tokens, num_rows, context, overlapped
        return self.verify

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float:
        """See `StepCosts`."""
        del rows_per_depth, num_catch_up_tokens, context, overlapped
        return self.draft


def both(cost: Callable[[float], float | None], what: str) -> Durations:
    """Ask what a step costs alone, and beside another device.

    Raises:
        ConfigError: the table knows nothing of such steps.
    """
    alone, overlapped = cost(0.0), cost(1.0)
    if alone is None or overlapped is None:
        raise ConfigError(f"costs: nothing is known of {what} steps")
    return Durations(alone, overlapped)
