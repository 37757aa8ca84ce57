"""Links of the drafters that are there: formed while both ends are, and anew when one is lost.

Whoever knows of a loss says so here. During a swap in place the swap forms the drafter's links.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import MineDraftError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.plans import LinkLost
    from minedraft.services.coordinator.engine import Engine
    from minedraft.services.coordinator.links import Linker
    from minedraft.services.coordinator.members import Member
    from minedraft.transport.worker_client import DrafterConnection

    Drafter = Member[DrafterConnection]

log = structlog.get_logger(__name__)


class LinkKeeper:
    """See the module docstring.

    Args:
        linker: Forms one.
        drafters: All of them; changes as they come and go.
        engine: Told which drafters are linked.
        reconnect_s: Pause before a link that did not form is tried again.
    """

    def __init__(
        self, linker: Linker, drafters: Sequence[Drafter], engine: Engine, reconnect_s: float
    ) -> None:
        self._linker = linker
        self._drafters = drafters
        self._engine = engine
        self._reconnect_s = reconnect_s
        self._changed = asyncio.Event()
        self._linking: dict[Drafter, asyncio.Task[None]] = {}
        """Whose link is being formed."""

    async def run(self) -> None:
        """Keep all of them linked until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for member in self._drafters:
                    if self._lacks_link(member):
                        # A task each: one whose link does not form must not hold up the others.
                        self._linking[member] = group.create_task(
                            self._link(member), name=f"link {member.address}"
                        )

    def look(self) -> None:
        """Somebody came or went: there may be a link to form."""
        self._changed.set()

    async def hand_over(self, member: Drafter) -> None:
        """From now on a swap links this drafter; returns when no other link of it is in the making.

        A link that stands by then serves. Give the drafter back with `take_back`.
        """
        member.is_joining = True
        linking = self._linking.get(member)
        if linking is not None:
            await asyncio.wait((linking,))

    def take_back(self, member: Drafter) -> None:
        """No swap links this drafter any more."""
        member.is_joining = False
        self.look()

    def unlink(self, member: Drafter) -> None:
        """A drafter's link is over; another one is formed if both ends are there."""
        epochs = (member.link_epoch, member.warming_epoch)
        member.link_epoch, member.warming_epoch, member.link_description = 0, 0, ""
        for epoch in epochs:
            if epoch:
                self._engine.drafter_down(epoch)
        self.look()

    def stop_warming(self, member: Drafter) -> None:
        """The link that shall take over is over; the one that serves, if there is one, stays."""
        epoch, member.warming_epoch = member.warming_epoch, 0
        if epoch:
            self._engine.drafter_down(epoch)
        self.look()

    def lost(self, lost: LinkLost) -> None:
        """A worker says that a link broke."""
        for member in self._drafters:
            if member.link_epoch == lost.epoch:
                log.warning("link.down", epoch=lost.epoch, why=lost.reason)
                self.unlink(member)
                return
            if member.warming_epoch == lost.epoch:
                self.stop_warming(member)
                return
        self._linker.note_lost(lost.epoch)

    def _lacks_link(self, member: Drafter) -> bool:
        is_there = member.connection is not None and self._linker.verifier.connection is not None
        has_link = member.link_epoch or member.warming_epoch or member in self._linking
        return is_there and not has_link and not member.is_joining

    async def _link(self, member: Drafter) -> None:
        try:
            formed = await self._linker.form(member, self._linker.next_epoch())
        except MineDraftError as err:
            member.last_error = f"link: {err}"
            log.warning("link.failed", drafter=member.address, why=str(err))
            await asyncio.sleep(self._reconnect_s)
            self.look()
            return
        finally:
            del self._linking[member]
        if member.connection is None or member.info is None:
            self.look()
            return
        member.link_epoch, member.link_description = formed.epoch, formed.description
        member.last_error = ""
        log.info("link.up", epoch=formed.epoch, transport=formed.description)
        self._engine.drafter_up(member.info.model, formed.epoch, member.connection.send)
