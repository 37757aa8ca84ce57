"""Draft packets as fixed-shape int32 words, the same on every transport. Pure: numpy only.

The shape never depends on the content: gloo and NCCL do not negotiate sizes, so both ends
preallocate. `decode` treats the peer as hostile: it raises nothing but ProtocolError, its memory
is bounded by the layout, and it never lets a bad id or number through.

Words: a header (magic, version, kind, epoch lo hi, step lo hi, batch, rows, checksum), then
`max_rows` rows (`rows`). The checksum is seeded with the layout, so two ends that
disagree about it understand nothing rather than something wrong.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from minedraft.errors import InvalidRequestError, ProtocolError
from minedraft.packets.rows import (
    INT32_MAX,
    UINT32,
    UINT64_MAX,
    DraftedRow,
    RowTable,
    halves,
    require,
)

if TYPE_CHECKING:
    from minedraft.packets.rows import Words

__all__ = ["MAX_PACKET_BYTES", "DraftPacket", "DraftedRow", "PacketLayout"]

MAX_PACKET_BYTES: Final = 2**20
"""Largest packet that the protocol allows (link.proto)."""

_MAGIC: Final = 0x4D444C4B  # "MDLK"
_VERSION: Final = 2
_INT32: Final = np.dtype("<i4")
_HEADER_WORDS: Final = 10
_CHECKSUM: Final = 9
_LIMITS: Final = {"max_rows": (1, 4096), "max_draft_tokens": (1, 32), "q_width": (0, 64)}


_DRAFTS: Final = 1  # kinds
_HEARTBEAT: Final = 2
_KINDS: Final = (_DRAFTS, _HEARTBEAT)


@dataclass(frozen=True, slots=True)
class DraftPacket:
    """The drafts of one step of one batch."""

    epoch: int
    step_id: int
    batch: int
    rows: tuple[DraftedRow, ...]
    num_bad_rows: int = 0
    """Rows whose malformed drafts `decode` dropped; 0 in a sent packet."""


@dataclass(frozen=True, slots=True)
class PacketLayout:
    """Shape of a link's packets; both ends have the same.

    Raises:
        InvalidRequestError: a limit is out of range, or the packet would be over 1 MiB.
    """

    max_rows: int
    """1..4096."""
    max_draft_tokens: int
    """1..32."""
    q_width: int = 0
    """0..64."""

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidRequestError(f"{name}={value}: want {low}..{high}", field=name)
        if self.num_bytes > MAX_PACKET_BYTES:
            raise InvalidRequestError(
                f"max_rows={self.max_rows}, max_draft_tokens={self.max_draft_tokens}, "
                f"q_width={self.q_width}: a packet would have {self.num_bytes} bytes, "
                f"the limit is {MAX_PACKET_BYTES}",
                field="max_rows",
            )

    @property
    def num_words(self) -> int:
        """Words of every packet."""
        return _HEADER_WORDS + self.max_rows * self._rows.row_words

    @property
    def num_bytes(self) -> int:
        """Bytes of every packet."""
        return self.num_words * _INT32.itemsize

    def encode(self, packet: DraftPacket) -> Words:
        """Write a packet.

        Returns:
            [num_words] int32, freshly allocated.

        Raises:
            StateError: something does not fit; nothing is truncated.
        """
        require("rows", len(packet.rows), 0, self.max_rows)
        words = self._begin(_DRAFTS, packet.epoch, packet.step_id, packet.batch)
        words[8] = len(packet.rows)
        if packet.rows:  # the rest of the table stays zero
            self._rows.write(self._table(words), packet.rows)
        return self._seal(words)

    def encode_heartbeat(self, epoch: int) -> Words:
        """Write a heartbeat."""
        return self._seal(self._begin(_HEARTBEAT, epoch, 0, 0))

    def from_bytes(self, data: bytes) -> Words:
        """View received bytes as words.

        Raises:
            ProtocolError: not the length of a packet.
        """
        if len(data) != self.num_bytes:
            raise ProtocolError(f"packet of {len(data)} bytes: want {self.num_bytes}")
        return np.frombuffer(data, dtype=_INT32)

    def is_heartbeat(self, words: Words) -> bool:
        """Whether these are a well-formed heartbeat."""
        return words.shape == (self.num_words,) and self._kind(words) == _HEARTBEAT

    def decode(self, words: Words, vocab_size: int) -> DraftPacket:
        """Read a packet from an untrusted peer.

        Args:
            words: [num_words] int32.
            vocab_size: Ids must be below it.

        Returns:
            The packet. A malformed row is there without drafts, and counted in `num_bad_rows`.

        Raises:
            ProtocolError: no draft packet of this layout.
        """
        if words.dtype != _INT32 or words.shape != (self.num_words,):
            raise ProtocolError(
                f"packet of {words.shape} {words.dtype}: want ({self.num_words},) int32"
            )
        if self._kind(words) != _DRAFTS:
            raise ProtocolError("packet: magic, version, kind or checksum is wrong")
        batch, num_rows = int(words[7]), int(words[8])
        if not 0 <= num_rows <= self.max_rows or batch < 0:
            raise ProtocolError(
                f"packet: rows={num_rows}: want 0..{self.max_rows}; batch={batch}: want >= 0"
            )
        epoch_low, epoch_high, step_low, step_high = words[3:7].view(UINT32).tolist()
        rows, num_bad = self._rows.read(self._table(words)[:num_rows], vocab_size)
        return DraftPacket(
            epoch_low | epoch_high << 32, step_low | step_high << 32, batch, rows, num_bad
        )

    @property
    def _rows(self) -> RowTable:
        return RowTable(self.max_draft_tokens, self.q_width)

    def _table(self, words: Words) -> Words:
        return words[_HEADER_WORDS:].reshape(self.max_rows, -1)

    def _begin(self, kind: int, epoch: int, step_id: int, batch: int) -> Words:
        require("epoch", epoch, 0, UINT64_MAX)
        require("step_id", step_id, 0, UINT64_MAX)
        require("batch", batch, 0, INT32_MAX)
        words = np.zeros(self.num_words, dtype=_INT32)
        words[:3] = (_MAGIC, _VERSION, kind)
        words[3:7].view(UINT32)[:] = (*halves(epoch), *halves(step_id))
        words[7] = batch
        return words

    def _seal(self, words: Words) -> Words:
        words.view(UINT32)[_CHECKSUM] = self._checksum(words)
        return words

    def _checksum(self, words: Words) -> int:
        seed = zlib.crc32(struct.pack("<3i", self.max_rows, self.max_draft_tokens, self.q_width))
        plain = np.ascontiguousarray(words)
        return zlib.crc32(plain[_CHECKSUM + 1 :].data, zlib.crc32(plain[:_CHECKSUM].data, seed))

    def _kind(self, words: Words) -> int | None:
        """Return the kind of a packet; None if header or checksum is wrong."""
        magic, version, kind = words[:3].tolist()
        if magic != _MAGIC or version != _VERSION or kind not in _KINDS:
            return None
        is_whole = int(words[_CHECKSUM]) & 0xFFFFFFFF == self._checksum(words)
        return int(kind) if is_whole else None
