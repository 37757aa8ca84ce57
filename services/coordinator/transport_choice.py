"""Which transport a link takes: the one configured, or the best that both ends have. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.errors import IncompatibleWorkerError
from minedraft.link.spec import Transport

if TYPE_CHECKING:
    from minedraft.plans import WorkerInfo

AUTO: Final = "auto"
BEST_FIRST: Final = (Transport.NCCL, Transport.GLOO, Transport.GRPC)
"""What AUTO tries; `local` is for tests and has to be asked for."""
_MAX_REMEMBERED: Final = 64


@dataclass(slots=True)
class TransportChoice:
    """Chooses, and remembers between whom nccl failed.

    Two workers may each have nccl and still not meet over it: one GPU for both, another version, a
    network it cannot cross. With AUTO such a pair takes the next best from then on.

    Args:
        wanted: AUTO or the name of a transport.
    """

    wanted: str
    _failed: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_MAX_REMEMBERED))

    def choose(self, verifier: WorkerInfo, drafter: WorkerInfo) -> Transport:
        """Choose for a link between these two.

        Raises:
            IncompatibleWorkerError: one of them lacks what is wanted, or they share nothing.
        """
        candidates = BEST_FIRST if self.wanted == AUTO else (Transport(self.wanted),)
        for transport in candidates:
            tried_before = self.wanted == AUTO and transport is Transport.NCCL
            if tried_before and _pair(verifier, drafter) in self._failed:
                continue
            if transport.value in verifier.transports and transport.value in drafter.transports:
                return transport
        raise IncompatibleWorkerError(
            f"link={self.wanted}: the verifier has {_names(verifier)}; "
            f"the drafter has {_names(drafter)}"
        )

    def note_failure(self, transport: Transport, verifier: WorkerInfo, drafter: WorkerInfo) -> None:
        """A link between these two did not form."""
        if transport is Transport.NCCL:
            self._failed.append(_pair(verifier, drafter))


def _pair(verifier: WorkerInfo, drafter: WorkerInfo) -> tuple[str, str]:
    return verifier.identity.instance_id, drafter.identity.instance_id


def _names(info: WorkerInfo) -> str:
    return ", ".join(info.transports) or "none"
