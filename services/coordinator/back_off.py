"""How long to leave a peer alone after it failed: longer each time, never in step. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import DrainingError, WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.errors import MineDraftError

LONGEST_S: Final = 30.0
AWAY_S: Final = 2.0
"""Longest pause where the peer is just not there. To knock costs one packet, and whoever restarts
a worker waits for this; a peer that answers wrongly costs a handshake or a link each time."""
STEADY_S: Final = 10.0
"""A peer that did its work for so long has failed for the first time."""
_MAX_DOUBLINGS: Final = 64


@dataclass(slots=True)
class BackOff:
    """Pauses between attempts at one peer.

    Args:
        first_s: Longest pause after the first failure; doubled after each further one.
        jitter: Uniform in [0, 1); those who lost the same peer must not come back in step.
    """

    first_s: float
    jitter: Callable[[], float] = random.random
    num_failures: int = 0

    def after(self, err: MineDraftError, worked_s: float) -> float:
        """Note a failure.

        Args:
            err: What it failed with.
            worked_s: How long it had worked before.

        Returns:
            Seconds until the next attempt.
        """
        if worked_s >= STEADY_S:
            self.num_failures = 0
        is_away = isinstance(err, WorkerUnavailableError | DrainingError)
        most_s = max(AWAY_S if is_away else LONGEST_S, self.first_s)
        doubled_s = self.first_s * 2.0 ** min(self.num_failures, _MAX_DOUBLINGS)
        self.num_failures += 1
        return min(doubled_s, most_s) * (0.5 + self.jitter() / 2)
