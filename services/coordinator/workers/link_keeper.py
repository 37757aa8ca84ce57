"""Links of the drafters that are there: formed while both ends are, and anew when one is lost.

Whoever knows of a loss says so here. During a swap in place the swap forms the drafter's links. A
link that does not form, or does not last, is tried again after a pause that grows; a new session
at either end begins anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from minedraft.errors import ProtocolError, WorkerUnavailableError
from minedraft.services.coordinator.workers.supervised import Supervised, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.plans import LinkLost
    from minedraft.services.coordinator.engine import Engine
    from minedraft.services.coordinator.workers.links import Linker
    from minedraft.services.coordinator.workers.members import Member
    from minedraft.transport.worker_client import DrafterConnection

    Drafter = Member[DrafterConnection]


log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Tries:
    """Attempts at one drafter's link."""

    peer: Supervised
    ends: tuple[object, object] = (None, None)
    """Sessions of drafter and verifier at the last failure."""
    not_before_s: float = 0.0
    """Loop time of the next attempt between these two."""


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
        self._tries: dict[Drafter, _Tries] = {}

    async def run(self) -> None:
        """Keep all of them linked until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._tries = {m: self._tries[m] for m in self._drafters if m in self._tries}
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

    def lost(self, lost: LinkLost, *, by: Drafter | None = None) -> None:
        """A worker says that a link broke.

        Args:
            lost: Which.
            by: The drafter that says so; None: the verifier, which has an end of every link.

        Raises:
            ProtocolError: it is not that drafter's, or none that was ever begun.
        """
        if not 0 < lost.epoch <= self._linker.newest_epoch:
            raise ProtocolError(f"link_lost: epoch={lost.epoch}, no link has that number")
        for member in self._drafters:
            if lost.epoch not in member.epochs:
                continue
            if by is not None and by is not member:
                raise ProtocolError(f"link_lost: epoch={lost.epoch}, that is another drafter's")
            why = f"lost: {shortened(lost.reason)}"
            if member.link_epoch == lost.epoch:
                member.last_error = f"link: {why}"
                self.unlink(member)
                tries = self._tried(member)
                tries.peer.failed(WorkerUnavailableError(why))
                self._rest(member, tries)
            else:
                self.stop_warming(member)
            return
        self._linker.note_lost(lost.epoch, by=by)

    def _lacks_link(self, member: Drafter) -> bool:
        is_there = member.connection is not None and self._linker.verifier.connection is not None
        has_link = member.link_epoch or member.warming_epoch or member in self._linking
        return is_there and not has_link and not member.is_joining and not self._rests(member)

    async def _link(self, member: Drafter) -> None:
        tries = self._tried(member)
        try:
            with tries.peer.attempt():
                await self._form(member, tries)
        finally:
            del self._linking[member]
        if tries.peer.error is None:
            self.look()  # an end may have left meanwhile
            return
        if member.connection is not None and self._linker.verifier.connection is not None:
            member.last_error = f"link: {tries.peer.reason}"  # else why an end left is the reason
        self._rest(member, tries)

    async def _form(self, member: Drafter, tries: _Tries) -> None:
        formed = await self._linker.form(member, self._linker.next_epoch())
        if member.connection is None or member.info is None:
            return
        member.link_epoch, member.link_description = formed.epoch, formed.description
        member.last_error = ""
        tries.peer.works()
        log.info("link.up", epoch=formed.epoch, transport=formed.description)
        self._engine.drafter_up(member.info.model, formed.epoch, member.connection.send)

    # -- pauses -----------------------------------------------------------------------------

    def _tried(self, member: Drafter) -> _Tries:
        """The attempts at a drafter's link, counted anew for a new session at either end."""
        ends = (member.connection, self._linker.verifier.connection)
        tries = self._tries.get(member)
        if tries is None:
            peer = Supervised(
                "link.failed", first_pause_s=self._reconnect_s, drafter=member.address
            )
            tries = self._tries[member] = _Tries(peer, ends)
        elif tries.ends != ends:
            tries.ends = ends
            tries.peer.started_over()
        return tries

    def _rest(self, member: Drafter, tries: _Tries) -> None:
        """Leave a drafter without a link for as long as its failures ask for."""
        loop = asyncio.get_running_loop()
        tries.ends = (member.connection, self._linker.verifier.connection)
        tries.not_before_s = loop.time() + tries.peer.pause_s
        loop.call_later(tries.peer.pause_s, self.look)

    def _rests(self, member: Drafter) -> bool:
        tries = self._tries.get(member)
        ends = (member.connection, self._linker.verifier.connection)
        if tries is None or tries.ends != ends:
            return False
        return asyncio.get_running_loop().time() < tries.not_before_s
