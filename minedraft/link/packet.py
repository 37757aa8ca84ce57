"""Draft packets as fixed-shape int32 words, the same on every transport. Pure: numpy only.

The shape never depends on the content: gloo and NCCL do not negotiate sizes, so both ends
preallocate. `decode` treats the peer as hostile: it raises nothing but ProtocolError, its memory
is bounded by the layout, and it never lets a bad id or number through.

Words: a header (magic, version, kind, epoch lo hi, step lo hi, batch, rows, checksum), then
`max_rows` rows (row id lo hi, base_len, k, flags, ids[K], confidences[K], q ids[K*W],
q probabilities[K*W]). Floats travel as their bits. The checksum is seeded with the layout, so two
ends that disagree about it understand nothing rather than something wrong.
"""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from minedraft.errors import InvalidRequestError, ProtocolError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.int32]
    Q: TypeAlias = tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]

MAX_PACKET_BYTES: Final = 2**20
"""What the protocol allows (link.proto)."""

_MAGIC: Final = 0x4D444C4B  # "MDLK"
_VERSION: Final = 1
_INT32: Final = np.dtype("<i4")
_HEADER_WORDS: Final = 10
_CHECKSUM: Final = 9
_ROW_HEAD_WORDS: Final = 5
_NO_ID: Final = -1  # pads q
_Q_MASS_TOLERANCE: Final = 1e-3
_LIMITS: Final = {"max_rows": (1, 4096), "max_draft_tokens": (1, 32), "q_width": (0, 64)}


class _Kind(IntEnum):
    DRAFTS = 1
    HEARTBEAT = 2


class _Flag(IntFlag):
    CONFIDENCES = 1
    Q = 2


@dataclass(frozen=True, slots=True)
class DraftedRow:
    """What the drafter proposes for one row."""

    row_id: int
    """0..2**64-1."""
    base_len: int
    """Committed tokens the drafts follow; the verifier uses them only if its own count is equal."""
    token_ids: tuple[int, ...]
    """The drafts, oldest first; may be empty."""
    confidences: tuple[float, ...] = ()
    """The drafter's probability of each draft, >= 0; empty, or one per draft."""
    q: Q = ()
    """Per draft the truncated distribution it was drawn from: (ids, probabilities); or empty."""


@dataclass(frozen=True, slots=True)
class DraftPacket:
    """The drafts of one step of one batch."""

    epoch: int
    step_id: int
    batch: int
    rows: tuple[DraftedRow, ...]
    num_bad_rows: int = 0
    """Rows of which `decode` dropped the drafts because they were malformed; 0 when sent."""


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
    def row_words(self) -> int:
        """Words of one row."""
        return _ROW_HEAD_WORDS + 2 * self.max_draft_tokens * (1 + self.q_width)

    @property
    def num_words(self) -> int:
        """Words of every packet."""
        return _HEADER_WORDS + self.max_rows * self.row_words

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
        _require("rows", len(packet.rows), 0, self.max_rows)
        words = self._begin(_Kind.DRAFTS, packet.epoch, packet.step_id, packet.batch)
        words[8] = len(packet.rows)
        table = words[_HEADER_WORDS:].reshape(self.max_rows, self.row_words)
        for line, row in zip(table, packet.rows, strict=False):  # the rest of the table stays zero
            self._write_row(line, row)
        return self._seal(words)

    def encode_heartbeat(self, epoch: int) -> Words:
        """Write a packet that only says "I am here"."""
        return self._seal(self._begin(_Kind.HEARTBEAT, epoch, 0, 0))

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
        return words.shape == (self.num_words,) and self._kind(words) is _Kind.HEARTBEAT

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
        if self._kind(words) is not _Kind.DRAFTS:
            raise ProtocolError("packet: magic, version, kind or checksum is wrong")
        _, _, _, epoch_lo, epoch_hi, step_lo, step_hi, batch, num_rows, _ = (
            int(word) for word in words[:_HEADER_WORDS]
        )
        if not 0 <= num_rows <= self.max_rows or batch < 0:
            raise ProtocolError(
                f"packet: rows={num_rows}: want 0..{self.max_rows}; batch={batch}: want >= 0"
            )
        table = words[_HEADER_WORDS:].reshape(self.max_rows, self.row_words)[:num_rows]
        rows: list[DraftedRow] = []
        seen: set[int] = set()
        num_bad = 0
        for line in table:
            row = self._read_row(line, vocab_size)
            if row is None or row.row_id in seen:
                num_bad += 1
                row = DraftedRow(_join(int(line[0]), int(line[1])), int(line[2]), ())
            seen.add(row.row_id)
            rows.append(row)
        epoch, step = _join(epoch_lo, epoch_hi), _join(step_lo, step_hi)
        return DraftPacket(epoch, step, batch, tuple(rows), num_bad)

    def _begin(self, kind: _Kind, epoch: int, step_id: int, batch: int) -> Words:
        _require("epoch", epoch, 0, 2**64 - 1)
        _require("step_id", step_id, 0, 2**64 - 1)
        _require("batch", batch, 0, 2**31 - 1)
        words = np.zeros(self.num_words, dtype=_INT32)
        words[:8] = (_MAGIC, _VERSION, kind, *_split(epoch), *_split(step_id), batch)
        return words

    def _seal(self, words: Words) -> Words:
        words[_CHECKSUM] = self._checksum(words)
        return words

    def _checksum(self, words: Words) -> int:
        seed = zlib.crc32(struct.pack("<3i", self.max_rows, self.max_draft_tokens, self.q_width))
        plain = np.ascontiguousarray(words)
        crc = zlib.crc32(plain[_CHECKSUM + 1 :].data, zlib.crc32(plain[:_CHECKSUM].data, seed))
        return _split(crc)[0]

    def _kind(self, words: Words) -> _Kind | None:
        magic, version, kind = (int(word) for word in words[:3])
        known = magic == _MAGIC and version == _VERSION and kind in tuple(_Kind)
        if not known or int(words[_CHECKSUM]) != self._checksum(words):
            return None
        return _Kind(kind)

    def _write_row(self, line: Words, row: DraftedRow) -> None:
        k, K, W = len(row.token_ids), self.max_draft_tokens, self.q_width
        _require("row_id", row.row_id, 0, 2**64 - 1)
        _require("base_len", row.base_len, 0, 2**31 - 1)
        _require("drafts of a row", k, 0, K)
        _require("width of q", max((len(ids) for ids, _ in row.q), default=0), 0, W)
        for ids in (row.token_ids, *(ids for ids, _ in row.q)):
            _require("token id", min(ids, default=0), 0, 2**31 - 1)
            _require("token id", max(ids, default=0), 0, 2**31 - 1)
        if len(row.confidences) not in {0, k} or len(row.q) not in {0, k}:
            raise StateError(
                f"row {row.row_id}: {k} drafts, {len(row.confidences)} confidences, "
                f"{len(row.q)} distributions: want none or one per draft"
            )
        flags = _Flag.CONFIDENCES * bool(row.confidences) | _Flag.Q * bool(row.q)
        line[:_ROW_HEAD_WORDS] = (*_split(row.row_id), row.base_len, k, flags)
        ids_at, confidences_at, q_ids, q_probs = self._parts(line)
        ids_at[:k] = row.token_ids
        confidences_at[: len(row.confidences)] = row.confidences
        if row.q:
            q_ids[:] = _NO_ID
        for j, (ids, probs) in enumerate(row.q):
            if len(ids) != len(probs):
                raise StateError(f"row {row.row_id}: q has {len(ids)} ids, {len(probs)} values")
            q_ids[j, : len(ids)] = ids
            q_probs[j, : len(ids)] = probs

    def _read_row(self, line: Words, vocab_size: int) -> DraftedRow | None:
        low, high, base_len, k, flags = line[:_ROW_HEAD_WORDS].tolist()
        if not 0 <= k <= self.max_draft_tokens or base_len < 0 or not 0 <= flags <= sum(_Flag):
            return None
        ids_at, confidences_at, q_ids, q_probs = self._parts(line)
        ids: list[int] = ids_at[:k].tolist()
        if not all(0 <= token_id < vocab_size for token_id in ids):
            return None
        confidences: list[float] = confidences_at[:k].tolist() if flags & _Flag.CONFIDENCES else []
        if not all(0 <= value < math.inf for value in confidences):  # NaN compares false
            return None
        q: Q = ()
        if flags & _Flag.Q:
            pairs = [
                _read_q(q_ids[j].tolist(), q_probs[j].tolist(), ids[j], vocab_size)
                for j in range(k)
            ]
            q = tuple(pair for pair in pairs if pair is not None)
            if len(q) != k:
                return None
        return DraftedRow(_join(low, high), base_len, tuple(ids), tuple(confidences), q)

    def _parts(self, line: Words) -> tuple[Words, NDArray[np.float32], Words, NDArray[np.float32]]:
        K, W = self.max_draft_tokens, self.q_width
        ids, confidences, q_ids, q_probs = np.split(
            line[_ROW_HEAD_WORDS:], (K, 2 * K, 2 * K + K * W)
        )
        return (
            ids,
            confidences.view("<f4"),
            q_ids.reshape(K, W),
            q_probs.view("<f4").reshape(K, W),
        )


def _read_q(
    ids: Sequence[int], probs: Sequence[float], drawn: int, vocab_size: int
) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    """One draft's distribution, or None unless it is one from which `drawn` can have come."""
    width = next((i for i, token_id in enumerate(ids) if token_id == _NO_ID), len(ids))
    kept_ids, kept = tuple(ids[:width]), tuple(probs[:width])
    mass = dict(zip(kept_ids, kept, strict=True))
    sane = (
        len(mass) == width
        and all(0 <= token_id < vocab_size for token_id in kept_ids)
        and all(0 <= value < math.inf for value in kept)
        and abs(sum(kept) - 1) <= _Q_MASS_TOLERANCE
        and mass.get(drawn, 0) > 0
    )
    return (kept_ids, kept) if sane else None


def _require(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise StateError(f"packet: {name}={value}: want {low}..{high}")


def _split(value: int) -> tuple[int, int]:
    """Low and high half of an unsigned 64-bit number, each as a signed 32-bit one."""
    low, high = struct.unpack("<2i", struct.pack("<Q", value))
    return low, high


def _join(low: int, high: int) -> int:
    value: int = struct.unpack("<Q", struct.pack("<2i", low, high))[0]
    return value
