"""Keeps one draft source that drafts at every connected drafter; forms another one after a loss.

Whoever knows of a loss says so here; what a loss does is told in `core.draft_source`. A link that
does not form, does not last or carries nothing is tried again after a pause that grows; a new
session at either end begins anew.
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

    from minedraft.errors import MineDraftError
    from minedraft.plans import LinkLost
    from minedraft.services.coordinator.core.draft_source import DraftSource
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
    is_in_doubt: bool = False
    """The last link that stood carried nothing."""


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
        self._lent: set[Drafter] = set()
        """Whose links a swap orders."""
        engine.on_broken = self.broken
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

    def lend(self, member: Drafter) -> None:
        """Lend this drafter's links to a swap, until `take_back`."""
        self._lent.add(member)

    async def hand_over(self, member: Drafter) -> None:
        """Lend a drafter; returns when no link of it is in the making. One that stands serves."""
        self.lend(member)
        linking = self._linking.get(member)
        if linking is not None:
            await asyncio.wait((linking,))

    def take_back(self, member: Drafter) -> None:
        """No swap orders this drafter's links any more."""
        self._lent.discard(member)
        self.look()

    def unlink(self, member: Drafter) -> None:
        """A session is over, and all links of this drafter with it."""
        for source in member.sources:
            self.drop(source)

    def drop(self, source: DraftSource) -> None:
        """A draft source is over; another one is begun if both ends are there."""
        self._engine.drop(source)
        self.look()

    def lost(self, lost: LinkLost, *, by: Drafter | None = None) -> None:
        """A worker says that a link broke.

        Args:
            lost: Which.
            by: The drafter that says so; None: the verifier, which has an end of every link.

        Raises:
            ProtocolError: it is not that drafter's, or none that was ever begun.
        """
        if not 0 < lost.epoch <= self._linker.num_begun:
            raise ProtocolError(f"link_lost: epoch={lost.epoch}, no link has that number")
        found = self._find(lost.epoch)
        if found is None:
            return  # it is over already
        member, source = found
        if by is not None and by is not member:
            raise ProtocolError(f"link_lost: epoch={lost.epoch}, that is another drafter's")
        if source.is_in_place:
            why = f"lost: {shortened(lost.reason)}"
            self._give_up(member, source, WorkerUnavailableError(why), is_useless=False)
        else:
            self.drop(source)

    def broken(self, source: DraftSource) -> None:
        """Nothing arrives over a link: another one is formed."""
        found = self._find(source.source_id)
        if found is None:  # its drafter leaves just now
            self.drop(source)
            return
        member, _ = found
        # An honest drafter drops the old link when it forms the next one; a swap tells it to.
        member.undropped = source
        self._give_up(member, source, ProtocolError(source.trouble), is_useless=True)

    def _find(self, epoch: int) -> tuple[Drafter, DraftSource] | None:
        """Whose link has this number, if it is not over."""
        for member in self._drafters:
            for source in member.sources:
                if source.source_id == epoch:
                    return member, source
        return None

    def _give_up(
        self, member: Drafter, source: DraftSource, err: MineDraftError, *, is_useless: bool
    ) -> None:
        """A link that was in use is over: drop its source, and try again after a pause."""
        member.last_error = f"link: {err}"
        self.drop(source)
        tries = self._tried(member)
        tries.is_in_doubt = is_useless
        if is_useless and not source.has_drafted:
            tries.peer.never_worked()  # it stood for long, but for nothing
        tries.peer.failed(err)
        self._rest(member, tries)

    def _lacks_link(self, member: Drafter) -> bool:
        is_there = member.connection is not None and self._linker.verifier.connection is not None
        is_busy = member in self._linking or member in self._lent
        return is_there and not member.sources and not is_busy and not self._rests(member)

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
        if member.connection is None or member.info is None:
            return
        connection, model = member.connection, member.info.model
        source = self._linker.begin(member, model)
        await self._linker.form(member, source)
        if not tries.is_in_doubt:  # else once drafts have arrived
            member.last_error = ""
        tries.peer.works()
        log.info("link.up", epoch=source.source_id, transport=source.description)
        self._engine.serve(source, connection.send)

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
            tries.ends, tries.is_in_doubt = ends, False
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
