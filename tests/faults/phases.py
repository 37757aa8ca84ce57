"""How a request is brought into each phase, and held there until a fault has happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.hooks import Hooks, has_drafts
from tests.faults.world import total


@dataclass(frozen=True)
class Phase:
    """One column of the matrix."""

    mode: tuple[int, int, int]
    prepare: Callable[[Hooks], None]
    """Closes gates, before the requests are sent."""
    is_there: Callable[[object], bool]
    """Of the status: at least one request is in the phase."""
    is_free: bool = False
    """Everything runs again when the fault happens."""


def _hold(role, **options):
    return lambda hooks: hooks.gates[role].close(**options)


# The first two requests fill a batch each and the others join at its next step: so many plans with
# drafts pass before everybody decodes.
PHASES = {
    "waiting": Phase((2, 1, 3), _hold("verifier"), lambda s: s.num_waiting == 2),
    "prefilling": Phase((2, 2, 3), _hold("verifier"), lambda s: total(s, "prefilling") == 2),
    "drafting": Phase(
        (2, 2, 3), _hold("drafter", holds=has_drafts, after=2), lambda s: total(s, "drafting") == 4
    ),
    "drafted": Phase(
        (2, 2, 3), _hold("verifier", holds=has_drafts, after=2), lambda s: total(s, "drafted") == 2
    ),
    "verifying": Phase(
        (1, 4, 3),
        _hold("verifier", holds=has_drafts, after=1),
        lambda s: total(s, "verifying") == 4,
    ),
    "streaming": Phase(
        (2, 2, 3),
        _hold("verifier", holds=has_drafts, after=4),
        lambda s: s.counters.num_output_tokens >= 8 and total(s, "verifying"),
        is_free=True,
    ),
}
