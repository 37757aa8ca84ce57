"""Computes the pause before the next attempt at a failed peer, with jitter. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import DrainingError, WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.errors import MineDraftError

LONGEST_S: Final = 30.0
GROWTH: Final = 2.0
GROWTH_AWAY: Final = 1.05
"""Where the peer is just not there. To knock costs one packet, and whoever restarts a worker waits
for this: a pause is about a twentieth of how long it has been away. A peer that answers wrongly
costs a handshake or a link each time."""
STEADY_S: Final = 10.0
"""A peer that did its work for so long has failed for the first time."""


@dataclass(slots=True)
class BackOff:
    """Pauses between attempts at one peer.

    Args:
        first_s: Longest pause after the first failure; it grows with each further one.
        jitter: Uniform in [0, 1); those who lost the same peer must not come back in step.
    """

    first_s: float
    jitter: Callable[[], float] = random.random
    _pause_s: float = 0.0
    """After the last failure, before jitter; 0: there was none."""

    def reset(self) -> None:
        """Forget all failures."""
        self._pause_s = 0.0

    def after(self, err: MineDraftError, worked_s: float) -> float:
        """Note a failure.

        Args:
            err: What it failed with.
            worked_s: How long it had worked before.

        Returns:
            Seconds until the next attempt.
        """
        if worked_s >= STEADY_S:
            self.reset()
        is_away = isinstance(err, WorkerUnavailableError | DrainingError)
        grown_s = self._pause_s * (GROWTH_AWAY if is_away else GROWTH)
        self._pause_s = max(min(grown_s, LONGEST_S), self.first_s)
        return self._pause_s * (0.5 + self.jitter() / 2)
