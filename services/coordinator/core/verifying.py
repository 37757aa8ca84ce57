"""Tracks which step the verifier runs, from its own reports. Pure.

It runs those steps first whose drafts have come, and says of each that it begins. What it is at is
the first that it has begun and not answered: what it fails at, what it owes, and whose requests are
being verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.request import Event, Phase, advance_all

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.plans import StepBegun
    from minedraft.services.coordinator.core.step import Step


class Verifying:
    """See the module docstring.

    Args:
        in_flight: By batch, the steps that the verifier has not answered. Kept by its owner.
    """

    def __init__(self, in_flight: Mapping[int, Step]) -> None:
        self._in_flight = in_flight
        self.begun: list[int] = []
        """Batches whose steps it has begun and not answered, in its order."""

    @property
    def step(self) -> Step | None:
        """The step it is at, or the oldest if it has said of none; None: none is in flight."""
        if self.begun:
            return self._in_flight[self.begun[0]]
        return min(self._in_flight.values(), key=lambda step: step.step_id, default=None)

    def begin(self, begun: StepBegun) -> None:
        """It begins a step, behind those that it is at. Repeats and old ones change nothing."""
        step = self._in_flight.get(begun.batch)
        if step is not None and step.step_id == begun.step_id and begun.batch not in self.begun:
            self.begun.append(begun.batch)
            step.began_early = not step.is_drafted

    def answer(self, batch: int) -> None:
        """It answers the step of a batch, whatever it said before: that is what it was at."""
        self.begun = [batch, *(other for other in self.begun if other != batch)]

    def end(self, batch: int) -> None:
        """The step of a batch is not in flight any more."""
        self.begun.remove(batch)

    def mark(self) -> None:
        """Requests of the step it is at are being verified once their drafts are in."""
        if self.begun:
            requests = self._in_flight[self.begun[0]].requests.values()
            advance_all(requests, Phase.DRAFTED, Event.VERIFY)
