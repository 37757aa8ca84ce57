"""Finds requests that kill verifier processes: counts deaths, isolates suspects, gives up. Pure.

A session that breaks says nothing of why. The next one does: behind the address is the same process
(the network failed) or another one (its predecessor has died). What it died of was in flight,
in whichever step: a process that is gone has answered for none of them. So all in flight are
counted, and a step of decoding clears a request. After a second death without one it is tried in
a step that has the verifier to itself; who is alone there at the third is given up.

The first death separates no request: verifiers are restarted on purpose, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step

MAX_DEATHS = 3
DEATHS_TO_BE_ALONE = 2


class Deaths:
    """See the module docstring."""

    def __init__(self) -> None:
        self._in_flight: list[Request] = []
        """When the last session broke."""
        self._was_alone = False
        self._on_trial: list[Request] = []

    def lost(self, steps: Iterable[Step]) -> None:
        """A session broke with these steps in flight."""
        steps = list(steps)
        self._in_flight = [request for step in steps for request in step.requests.values()]
        self._was_alone = sum(len(step.num_draft_tokens) for step in steps) == 1

    def verdict(self, *, has_died: bool) -> list[Request]:
        """A new session begins.

        Args:
            has_died: Another process has it than the one whose session broke.

        Returns:
            Live requests that processes have died of; the caller ends them.
        """
        suspects, self._in_flight = self._in_flight, []
        given_up = []
        for request in suspects if has_died else ():
            if request.is_finished:
                continue
            request.num_deaths += 1
            if request.num_deaths >= MAX_DEATHS and self._was_alone:
                given_up.append(request)
            elif request.num_deaths == DEATHS_TO_BE_ALONE:
                self._on_trial.append(request)
        return given_up

    @property
    def on_trial(self) -> list[Request]:
        """Live requests that must have the verifier to themselves."""
        self._on_trial = [
            request
            for request in self._on_trial
            if request.num_deaths >= DEATHS_TO_BE_ALONE and not request.is_finished
        ]
        return self._on_trial
