"""The order to form a token link: both ends, transport and limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minedraft.errors import InvalidRequestError
from minedraft.packets.packet import PacketLayout

_MAX_NAME_CHARS = 256
_MAX_FORM_TIMEOUT_S = 600.0


class Transport(Enum):
    """The transports of packets."""

    LOCAL = "local"  # both ends in one process; tests
    GLOO = "gloo"  # torch's gloo: CPU tensors over TCP
    GRPC = "grpc"  # bytes in a gRPC stream; works wherever the control plane works
    NCCL = "nccl"  # a communicator of two ranks, between two CUDA devices


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """The coordinator's order to both ends to form one link.

    Raises:
        InvalidRequestError: a field is out of range.
    """

    epoch: int
    """Number of the link; > 0, grows within one coordinator's life."""
    name: str
    """Unique per attempt, because a failed attempt leaves its rendezvous dirty."""
    transport: Transport
    max_rows: int
    """Most rows in a packet; 1..4096."""
    max_draft_tokens: int
    """Most draft tokens in a row; 1..32."""
    q_width: int = 0
    """(id, probability) pairs per draft token; 0..64, 0 unless acceptance is by rejection."""
    verifier_address: str = ""
    """`host:port` of the verifier's TokenLink service; the drafter dials it."""
    timeout_s: float = 30.0
    """Seconds to form it; (0, 600]."""

    def __post_init__(self) -> None:
        if not 0 < self.epoch < 2**64:
            raise InvalidRequestError(f"epoch={self.epoch}: want 1..2**64-1", field="epoch")
        printable = self.name.isascii() and self.name.isprintable()
        if not 0 < len(self.name) <= _MAX_NAME_CHARS or not printable:
            raise InvalidRequestError(
                f"name={self.name[:_MAX_NAME_CHARS]!r}: want 1..{_MAX_NAME_CHARS} printable "
                "ASCII characters",
                field="name",
            )
        if not 0 < self.timeout_s <= _MAX_FORM_TIMEOUT_S:  # also refuses NaN
            raise InvalidRequestError(
                f"timeout_s={self.timeout_s}: want (0, {_MAX_FORM_TIMEOUT_S:g}]", field="timeout_s"
            )
        _ = self.layout  # refuses what a packet cannot hold

    @property
    def layout(self) -> PacketLayout:
        """Shape of this link's packets."""
        return PacketLayout(self.max_rows, self.max_draft_tokens, self.q_width)
