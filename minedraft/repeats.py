"""Limits log lines to one per cause and minute; the next one counts the repeats. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S: Final = 60.0
MAX_CAUSES: Final = 8
"""Most distinct causes at a time; a peer may invent texts, so further ones share one entry."""
_OTHERS: Final = "\0others"


@dataclass(slots=True)
class _Said:
    """The log lines of one cause."""

    at_s: float
    num_unsaid: int = 0


class Repeats:
    """Decides whether to log a cause again.

    Args:
        period_s: Shortest time between two lines of one cause.
        max_causes: See `MAX_CAUSES`.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        period_s: float = PERIOD_S,
        max_causes: int = MAX_CAUSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._period_s = period_s
        self._max_causes = max_causes
        self._clock = clock
        self._said: dict[str, _Said] = {}

    def take(self, cause: str) -> int | None:
        """Count a cause once more.

        Returns:
            How often it was left unsaid since it was last said; None: leave it unsaid now.
        """
        now_s = self._clock()
        said = self._said.get(cause)
        if said is None and len(self._said) >= self._max_causes:
            self._said = {c: s for c, s in self._said.items() if not self._is_old(s, now_s)}
            if len(self._said) >= self._max_causes:
                cause = _OTHERS
                said = self._said.get(cause)
        if said is not None and not self._is_old(said, now_s):
            said.num_unsaid += 1
            return None
        self._said[cause] = _Said(now_s)
        return said.num_unsaid if said is not None else 0

    def facts(self, cause: str) -> dict[str, int] | None:
        """As `take`, but return the facts for the log line.

        Returns:
            `{}`, or `{"repeated": n}`; None: leave it unsaid now.
        """
        num_unsaid = self.take(cause)
        if num_unsaid is None:
            return None
        return {"repeated": num_unsaid} if num_unsaid else {}

    def _is_old(self, said: _Said, now_s: float) -> bool:
        return now_s - said.at_s >= self._period_s
