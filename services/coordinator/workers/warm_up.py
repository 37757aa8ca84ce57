"""Links a new drafter and waits until it has caught up; retries after a loss.

Decides nothing of the drafter that it replaces: see `swap`, and `core.draft_source` for the whole.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import IncompatibleWorkerError, MineDraftError, WorkerUnavailableError
from minedraft.repeats import Repeats

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.draft_source import DraftSource
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
        self.source: DraftSource | None = None
        """The last one that was begun."""
        self.trouble = ""
        """What it had to try again after."""
        self._repeats = Repeats()

    async def run(self, new: Drafter, model: ModelInfo) -> DraftSource:
        """Return a source that is warm; try again while that may help.

        Raises:
            IncompatibleWorkerError: drafter and verifier share no transport.
            MineDraftError: the drafter left, or no link formed in several attempts.
        """
        connection = new.connection
        num_unformed = 0
        pause_s = min(self._membership.linker.config.reconnect_s, _LONGEST_PAUSE_S)
        while True:
            if connection is None or new.connection is not connection:
                raise WorkerUnavailableError(f"drafter {new.address} left during the swap")
            source = self.source = self._membership.linker.begin(new, model)
            try:
                await self._membership.linker.form(new, source)
            except IncompatibleWorkerError:
                raise
            except MineDraftError as err:
                num_unformed += 1
                if num_unformed >= _MAX_UNFORMED or new.connection is not connection:
                    raise
                self._note(str(err))
            else:
                await self._catch_up(source, connection)
                if source.is_warm:
                    return source
                num_unformed = 0
                self._note("its link was lost while it warmed up")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _catch_up(self, source: DraftSource, connection: DrafterConnection) -> None:
        """Return when a source is warm, or gone."""
        self._engine.warm_up(source, connection.send)
        try:
            await self._engine.until(lambda: source.is_warm or source.is_gone)
        except BaseException:
            self._membership.links.drop(source)
            raise

    def _note(self, trouble: str) -> None:
        self.trouble = trouble
        repeated = self._repeats.facts(trouble)
        if repeated is not None:
            log.warning("swap.retried", why=trouble, **repeated)
