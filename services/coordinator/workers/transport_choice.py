"""Chooses the transport of a link: the configured one, or the best that both ends have. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.errors import IncompatibleWorkerError
from minedraft.packets.spec import Transport
from minedraft.security.config import is_loopback
from minedraft.services.coordinator.config import AUTO

if TYPE_CHECKING:
    from minedraft.plans import WorkerInfo

BEST_FIRST: Final = (Transport.NCCL, Transport.GLOO, Transport.GRPC)
"""What AUTO tries on one machine; `local` is for tests and has to be asked for."""
_MAX_REMEMBERED: Final = 64


@dataclass(slots=True)
class TransportChoice:
    """Chooses, and remembers which transport failed between which workers.

    Two workers may each have a transport and still not meet over it: for nccl one GPU for both or
    another version, for gloo ports that are closed. With AUTO such a pair takes the next best from
    then on, and begins again with the best when each of them has failed.

    gloo trusts whoever comes to its port, and its packets are in the clear. So AUTO takes it only
    where both ends are on one machine (ADR 0018).

    Args:
        wanted: AUTO or the name of a transport.
        verifier_address: Where drafters reach the verifier, if the verifier does not say so itself.
    """

    wanted: str
    verifier_address: str
    _failed: deque[tuple[str, str, Transport]] = field(
        default_factory=lambda: deque(maxlen=_MAX_REMEMBERED)
    )

    def choose(self, verifier: WorkerInfo, drafter: WorkerInfo) -> Transport:
        """Choose for a link between these two.

        Raises:
            IncompatibleWorkerError: one of them lacks what is wanted, or they share nothing.
        """
        shared = self._shared(verifier, drafter)
        if not shared:
            raise IncompatibleWorkerError(
                f"link={self.wanted}: the verifier has {_names(verifier)}; "
                f"the drafter has {_names(drafter)}"
            )
        failed = self.failed(verifier, drafter)
        return next((transport for transport in shared if transport not in failed), shared[0])

    def note_failure(self, transport: Transport, verifier: WorkerInfo, drafter: WorkerInfo) -> None:
        """A link between these two did not form."""
        if self.wanted != AUTO:
            return
        if transport not in self.failed(verifier, drafter):
            self._failed.append(_key(verifier, drafter, transport))
        if self.failed(verifier, drafter) == self._shared(verifier, drafter):
            for each in self._shared(verifier, drafter):
                self._failed.remove(_key(verifier, drafter, each))

    def failed(self, verifier: WorkerInfo, drafter: WorkerInfo) -> tuple[Transport, ...]:
        """What these two have been through, best first."""
        return tuple(
            transport
            for transport in self._shared(verifier, drafter)
            if _key(verifier, drafter, transport) in self._failed
        )

    def _shared(self, verifier: WorkerInfo, drafter: WorkerInfo) -> tuple[Transport, ...]:
        """What both have of what is wanted, best first."""
        wanted = self._auto(verifier) if self.wanted == AUTO else (Transport(self.wanted),)
        both = {*verifier.transports} & {*drafter.transports}
        return tuple(transport for transport in wanted if transport.value in both)

    def _auto(self, verifier: WorkerInfo) -> tuple[Transport, ...]:
        if is_loopback(verifier.link_address or self.verifier_address):
            return BEST_FIRST
        return tuple(each for each in BEST_FIRST if each is not Transport.GLOO)


def _key(
    verifier: WorkerInfo, drafter: WorkerInfo, transport: Transport
) -> tuple[str, str, Transport]:
    return verifier.identity.instance_id, drafter.identity.instance_id, transport


def _names(info: WorkerInfo) -> str:
    return ", ".join(info.transports) or "none"
