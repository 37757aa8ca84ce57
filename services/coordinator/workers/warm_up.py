"""A drafter that shall take over is linked and brought up to date; what breaks is tried again.

Decides nothing of the drafter that it replaces: see `swap`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import IncompatibleWorkerError, MineDraftError, WorkerUnavailableError
from minedraft.repeats import Repeats

if TYPE_CHECKING:
    from minedraft.services.coordinator.workers.links import Formed
    from minedraft.services.coordinator.workers.members import Member
    from minedraft.services.coordinator.workers.membership import Membership
    from minedraft.transport.worker_client import DrafterConnection
    from minedraft.types import ModelInfo

    Drafter = Member[DrafterConnection]

log = structlog.get_logger(__name__)

_MAX_UNFORMED = 5
"""Attempts in a row at a link that does not form; one that broke later is another matter."""
_LONGEST_PAUSE_S = 5.0


class WarmUp:
    """One, of one drafter; whoever runs it bounds it.

    Args:
        membership: Whose links they are.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._engine = membership.engine
        self.epoch = 0
        """Of the last link that was begun; 0: none yet."""
        self.trouble = ""
        """What it had to try again after."""
        self._repeats = Repeats()

    async def run(self, new: Drafter, model: ModelInfo) -> Formed:
        """Return a link whose drafter has caught up; try again while that may help."""
        connection = new.connection
        num_unformed = 0
        pause_s = min(self._membership.linker.config.reconnect_s, _LONGEST_PAUSE_S)
        while True:
            if connection is None or new.connection is not connection:
                raise WorkerUnavailableError(f"drafter {new.address} left during the swap")
            self.epoch = self._membership.linker.next_epoch()
            try:
                formed = await self._membership.linker.form(new, self.epoch)
            except IncompatibleWorkerError:
                raise
            except MineDraftError as err:
                num_unformed += 1
                if num_unformed >= _MAX_UNFORMED or new.connection is not connection:
                    raise
                self._note(str(err))
            else:
                if await self._catches_up(new, connection, model, formed.epoch):
                    return formed
                num_unformed = 0
                self._note("its link was lost while it warmed up")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _catches_up(
        self, new: Drafter, connection: DrafterConnection, model: ModelInfo, epoch: int
    ) -> bool:
        """Warm a drafter up over a link; False: the link was lost meanwhile."""
        if new.connection is not connection:
            return False
        new.warming_epoch = epoch
        self._engine.warm_up(model, epoch, connection.send)
        try:
            await self._engine.until(lambda: self._engine.core.is_ready(epoch))
        except BaseException:
            self._membership.links.stop_warming(new)
            raise
        return epoch in self._engine.core.warming_epochs

    def _note(self, trouble: str) -> None:
        self.trouble = trouble
        repeated = self._repeats.facts(trouble)
        if repeated is not None:
            log.warning("swap.tries_again", why=trouble, **repeated)
