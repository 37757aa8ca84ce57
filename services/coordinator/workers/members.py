"""What the coordinator knows of one worker. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from minedraft.admin import WorkerStatus
from minedraft.plans import WorkerIdentity
from minedraft.types import ModelInfo

if TYPE_CHECKING:
    from minedraft.errors import MineDraftError
    from minedraft.plans import WorkerInfo, WorkerUsage

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
    link_epoch: int = 0
    """Of the link that serves; 0: none."""
    warming_epoch: int = 0
    """Of the link that shall serve once its drafter has caught up; 0: none."""
    link_description: str = ""
    usage: WorkerUsage | None = None
    """What it said last that it holds; None while no session is open."""
    last_error: str = ""
    refusal: MineDraftError | None = None
    """Why it was not taken the last time, if dialling it again will hardly help."""
    retry_s: float = 0.0
    """Pause before it is dialled again; 0: the usual one."""
    is_joining: bool = False
    """A swap links it, not the membership."""

    @property
    def epochs(self) -> tuple[int, int]:
        """Of the link that serves and of the one that shall; 0: there is none."""
        return self.link_epoch, self.warming_epoch

    def status(self) -> WorkerStatus:
        """For the operator."""
        return WorkerStatus(
            role=self.role,
            address=self.address,
            connected=self.connection is not None,
            identity=self.info.identity if self.info else _NOBODY,
            model=self.info.model if self.info else _NO_MODEL,
            link_epoch=self.link_epoch,
            link_description=self.link_description,
            last_error=self.last_error,
            usage=self.usage,
        )
