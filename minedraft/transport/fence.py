"""Gives a worker to one coordinator at a time, until that one leaves.

Every call but GetInfo says in its metadata which coordinator makes it. A worker gives its session
to one of them, and refuses sessions, link orders and models of all others while that session lives.
How long that is the connection decides: a process that ends frees its workers at once, a network
that swallows everything when keepalive has noticed. The holder itself may open a session at any
time: it has lost the one before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import InvalidRequestError, PreconditionError, WorkerHeldError

if TYPE_CHECKING:
    from collections.abc import Iterable

log = structlog.get_logger(__name__)

_ID_KEY = "minedraft-coordinator"
_NAME_KEY = "minedraft-coordinator-name"
_ID = re.compile(r"[0-9A-Za-z_.-]{1,64}")
_NAME = re.compile(r"[ -~]{0,128}")
_MAX_REFUSED = 16


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of a worker."""

    instance_id: str
    """Drawn at process start, so that another value means another coordinator."""
    name: str = ""
    """Where it runs, for people; at most 128 printable ASCII characters."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of its calls."""
        return ((_ID_KEY, self.instance_id), (_NAME_KEY, self.name))

    def __str__(self) -> str:
        return f"coordinator {self.instance_id} ({self.name or 'without a name'})"


def coordinator_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> Coordinator:
    """Read the coordinator from a call's metadata.

    Raises:
        InvalidRequestError: it does not say, or in characters that no coordinator has.
    """
    said = {key: value for key, value in metadata or () if key in {_ID_KEY, _NAME_KEY}}
    found = {}
    for key, pattern in ((_ID_KEY, _ID), (_NAME_KEY, _NAME)):
        value = said.get(key, "")
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidRequestError(
                f"metadata {key}={value[:64]!r}: want {pattern.pattern}", field=key
            )
        found[key] = value
    return Coordinator(found[_ID_KEY], found[_NAME_KEY])


class Fence:
    """Tracks which coordinator holds a worker. Pure.

    Args:
        what: The worker's role, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._holder: Coordinator | None = None
        self._refused: set[str] = set()
        """Coordinators refused since then; the worker logs each once, however often it retries."""

    @property
    def holder(self) -> Coordinator | None:
        """The coordinator whose session is open; None: there is none."""
        return self._holder

    def take(self, coordinator: Coordinator) -> None:
        """Give the worker to the coordinator that opens a session.

        Raises:
            WorkerHeldError: another one's session is open.
        """
        holder = self._holder
        if holder is not None and holder.instance_id != coordinator.instance_id:
            if coordinator.instance_id not in self._refused and len(self._refused) < _MAX_REFUSED:
                self._refused.add(coordinator.instance_id)
                log.warning("session.refused", to=str(coordinator), holder=str(holder))
            raise self._held(holder)
        self._holder = coordinator

    def leave(self) -> None:
        """End the session of the holder."""
        self._holder = None
        self._refused.clear()

    def check(self, coordinator: Coordinator) -> None:
        """Check that a call comes from the coordinator whose session is open.

        Raises:
            WorkerHeldError: another one's is.
            PreconditionError: none is.
        """
        if self._holder is None:
            raise PreconditionError(
                f"this {self._what} takes no order from {coordinator}: it has no session open"
            )
        if self._holder.instance_id != coordinator.instance_id:
            raise self._held(self._holder)

    def _held(self, holder: Coordinator) -> WorkerHeldError:
        return WorkerHeldError(
            f"this {self._what} belongs to {holder}, until that one's session ends"
        )
