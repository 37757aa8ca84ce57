"""The coordinator's knowledge of one worker. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from minedraft.admin import WorkerStatus
from minedraft.plans import WorkerIdentity
from minedraft.types import ModelInfo

if TYPE_CHECKING:
    import asyncio

    from minedraft.errors import MineDraftError
    from minedraft.plans import WorkerInfo, WorkerUsage
    from minedraft.services.coordinator.core.draft_source import DraftSource

_NOBODY = WorkerIdentity("", 0, 0, 0, "")
_NO_MODEL = ModelInfo("", 0, 0, "", "")

Connection = TypeVar("Connection")


@dataclass(slots=True, eq=False)
class Member(Generic[Connection]):
    """One worker, as far as it is known."""

    role: str
    address: str
    server_name: str = ""
    """Name its certificate must have, if not that of its address."""
    info: WorkerInfo | None = None
    connection: Connection | None = None
    """Set while a session is open."""
    usage: WorkerUsage | None = None
    """What it said last that it holds; None while no session is open."""
    last_error: str = ""
    refusal: MineDraftError | None = None
    """Last rejection, when retrying cannot fix it."""
    retry_s: float = 0.0
    """Pause before it is dialled again; 0: the usual one."""
    retry_at_once: asyncio.Event | None = None
    """Once this is set that pause is over."""
    undropped: DraftSource | None = None
    """The last one that was given up though its link stands: the drafter keeps that link until it
    forms another one with the same model, or is told to drop it."""
    _sources: list[DraftSource] = field(default_factory=list)

    def begin(self, source: DraftSource) -> None:
        """A link is being formed, and this drafter shall draft over it."""
        self._sources = [*self.sources, source]

    @property
    def sources(self) -> tuple[DraftSource, ...]:
        """Its draft sources that are not over; several only while it is swapped in place."""
        return tuple(source for source in self._sources if not source.is_gone)

    @property
    def source(self) -> DraftSource | None:
        """The one that drafts, if one does."""
        return next((source for source in self._sources if source.is_in_place), None)

    def status(self) -> WorkerStatus:
        """For the operator."""
        source = self.source
        return WorkerStatus(
            role=self.role,
            address=self.address,
            connected=self.connection is not None,
            identity=self.info.identity if self.info else _NOBODY,
            model=self.info.model if self.info else _NO_MODEL,
            link_epoch=source.source_id if source else 0,
            link_description=source.description if source else "",
            last_error=self._trouble(source),
            usage=self.usage,
        )

    def _trouble(self, source: DraftSource | None) -> str:
        if source is None:
            return self.last_error
        # That its last link was useless is over once drafts arrive over this one.
        return source.trouble or ("" if source.has_drafted else self.last_error)
