"""Finds requests that make the verifier fail: counts failures, isolates, gives up. Pure.

The verifier says which step it begins, so what fails is the first it has begun and not answered:
only that step's requests are suspects, whatever the other batches were waiting for. Which one of
them it was cannot be told, so each is tried in steps of its own until a step of decoding clears
it; a request that fails alone again and again is given up, and ends no other.

Prefilling clears no request. Every new session begins with it, so a request that only fails later
would be cleared in each one and end sessions for ever.

Where the whole process ends, `deaths` says which requests are suspects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.deaths import DEATHS_TO_BE_ALONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minedraft.services.coordinator.core.request import Request

_MAX_FAILED_STEPS = 3


def count_failure(requests: Iterable[Request]) -> list[Request]:
    """Count a failure of the verifier at a step with these requests in it.

    Returns:
        Those it has failed at too often since their last step of decoding.
    """
    lost = []
    for request in requests:
        request.num_failed_steps += 1
        if request.num_failed_steps >= _MAX_FAILED_STEPS:
            lost.append(request)
    return lost


def apart(members: Sequence[Request]) -> list[list[Request]]:
    """Who may share a step: each suspect is alone. Try one group after the other."""
    if not any(r.num_failed_steps or r.num_deaths for r in members):
        return [list(members)]  # nearly always
    suspects: list[list[Request]] = []
    others: list[Request] = []
    for request in members:
        if request.num_failed_steps or request.num_deaths >= DEATHS_TO_BE_ALONE:
            suspects.append([request])
        else:
            others.append(request)
    return [*suspects, others]
