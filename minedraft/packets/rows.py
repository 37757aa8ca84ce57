"""The rows of a draft packet as columns of int32 words. Pure: numpy only.

Writing refuses what does not fit. Reading believes nothing: a row that is malformed loses its
drafts, which costs a step its speculation for that row and nothing else.

Words of a row: row id lo hi, base_len, k, flags, ids[K], scores[K], q ids[K*W],
q probabilities[K*W]. Floats travel as their bits; q is padded with the id -1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.int32]
    _Floats: TypeAlias = NDArray[np.float32]
    Q: TypeAlias = tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]

UINT32: Final = np.dtype("<u4")
UINT64_MAX: Final = 2**64 - 1
INT32_MAX: Final = 2**31 - 1

_FLOAT32: Final = np.dtype("<f4")
_LOW: Final = 2**32 - 1
_HEAD_WORDS: Final = 5
_SCORES: Final = 1  # flags
_Q: Final = 2
_NO_ID: Final = -1
_Q_MASS_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, slots=True)
class DraftedRow:
    """The drafts of one row."""

    row_id: int
    """0..2**64-1."""
    base_len: int
    """Committed length before the drafts; the verifier uses them only if its own is equal."""
    token_ids: tuple[int, ...]
    """The drafts, oldest first; may be empty."""
    scores: tuple[float, ...] = ()
    """What the drafter says of each draft (`plans.Score`), >= 0; empty, or one per draft."""
    q: Q = ()
    """Per draft its truncated distribution as (ids, probabilities); or empty."""


@dataclass(frozen=True, slots=True)
class RowTable:
    """Layout of the rows in a packet.

    Args:
        max_draft_tokens: K.
        q_width: W.
    """

    max_draft_tokens: int
    q_width: int

    @property
    def row_words(self) -> int:
        """Words of one row."""
        return _HEAD_WORDS + 2 * self.max_draft_tokens * (1 + self.q_width)

    def write(self, table: Words, rows: Sequence[DraftedRow]) -> None:
        """Fill the first rows of a table of zeros.

        Args:
            table: [>= len(rows), row_words] int32.
            rows: At least one.

        Raises:
            StateError: a row does not fit.
        """
        K, W = self.max_draft_tokens, self.q_width
        heads, ids, scores, q_ids, q_probs = self._columns(table[: len(rows)])
        # One assignment for each column: a step waits for this.
        heads.view(UINT32)[:] = [self._head(row) for row in rows]
        ids[:] = [_padded(row.token_ids, K, 0) for row in rows]
        scores[:] = [_padded(row.scores, K, 0.0) for row in rows]
        for i, row in enumerate(rows):
            for j, (some_ids, probs) in enumerate(row.q):
                q_ids[i, j * W : (j + 1) * W] = _padded(some_ids, W, _NO_ID)
                q_probs[i, j * W : (j + 1) * W] = _padded(probs, W, 0.0)

    def read(self, table: Words, vocab_size: int) -> tuple[tuple[DraftedRow, ...], int]:
        """Read a whole table, [rows, row_words] int32, from an untrusted peer.

        Returns:
            The rows, and how many of them lost their drafts.
        """
        heads, ids, scores, q_ids, q_probs = self._columns(table)
        rows: list[DraftedRow] = []
        seen: set[int] = set()
        num_bad = 0
        for i, (head, row_ids, row_scores) in enumerate(
            zip(heads.tolist(), ids.tolist(), scores.tolist(), strict=True)
        ):
            low, high, base_len, k, flags = head
            row_id = (low & _LOW) | (high & _LOW) << 32
            drafts = row_ids[: max(k, 0)]
            values = row_scores[: len(drafts)] if flags & _SCORES else ()
            is_good = (
                0 <= k <= self.max_draft_tokens
                and base_len >= 0
                and 0 <= flags <= (_SCORES | _Q)
                and row_id not in seen
                and all(0 <= token_id < vocab_size for token_id in drafts)
                and all(0 <= value < math.inf for value in values)  # NaN compares false
            )
            q: Q | None = ()
            if is_good and flags & _Q:
                q = self._read_q(drafts, q_ids[i], q_probs[i], vocab_size)
            if is_good and q is not None:
                rows.append(DraftedRow(row_id, base_len, tuple(drafts), tuple(values), q))
            else:
                rows.append(DraftedRow(row_id, base_len, ()))
                num_bad += 1
            seen.add(row_id)
        return tuple(rows), num_bad

    def _columns(self, table: Words) -> tuple[Words, Words, _Floats, Words, _Floats]:
        """Views: heads, ids, scores, q ids, q probabilities."""
        K, W = self.max_draft_tokens, self.q_width
        ids_at, q_at = _HEAD_WORDS, _HEAD_WORDS + 2 * K
        return (
            table[:, :ids_at],
            table[:, ids_at : ids_at + K],
            table[:, ids_at + K : q_at].view(_FLOAT32),
            table[:, q_at : q_at + K * W],
            table[:, q_at + K * W :].view(_FLOAT32),
        )

    def _head(self, row: DraftedRow) -> tuple[int, int, int, int, int]:
        k = len(row.token_ids)
        require("row_id", row.row_id, 0, UINT64_MAX)
        require("base_len", row.base_len, 0, INT32_MAX)
        require("drafts of a row", k, 0, self.max_draft_tokens)
        if len(row.scores) not in {0, k} or len(row.q) not in {0, k}:
            raise StateError(
                f"row {row.row_id}: {k} drafts, {len(row.scores)} scores, "
                f"{len(row.q)} distributions: want none or one per draft"
            )
        _require_ids(row.token_ids)
        for ids, probs in row.q:
            require("width of q", len(ids), 0, self.q_width)
            _require_ids(ids)
            if len(ids) != len(probs):
                raise StateError(f"row {row.row_id}: q has {len(ids)} ids, {len(probs)} values")
        flags = _SCORES * bool(row.scores) | _Q * bool(row.q)
        return (*halves(row.row_id), row.base_len, k, flags)

    def _read_q(
        self, drafts: Sequence[int], ids: Words, probs: _Floats, vocab_size: int
    ) -> Q | None:
        """Return one distribution per draft; None unless each draft can have come from its own."""
        W = self.q_width
        pairs = []
        for j, drawn in enumerate(drafts):
            part = slice(j * W, (j + 1) * W)
            pair = _distribution(ids[part].tolist(), probs[part].tolist(), drawn, vocab_size)
            if pair is None:
                return None
            pairs.append(pair)
        return tuple(pairs)


def _distribution(
    ids: Sequence[int], probs: Sequence[float], drawn: int, vocab_size: int
) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
    """Return a draft's distribution; None unless `drawn` can have come from it."""
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


def require(name: str, value: int, low: int, high: int) -> None:
    """Refuse a value that this side must never put into a packet."""
    if not low <= value <= high:
        raise StateError(f"packet: {name}={value}: want {low}..{high}")


def _require_ids(ids: Sequence[int]) -> None:
    require("token id", min(ids, default=0), 0, INT32_MAX)
    require("token id", max(ids, default=0), 0, INT32_MAX)


def _padded(values: Sequence[float], width: int, filler: float) -> tuple[float, ...]:
    return (*values, *(filler,) * (width - len(values)))


def halves(value: int) -> tuple[int, int]:
    """Low and high 32 bits of an unsigned 64-bit number."""
    return value & _LOW, value >> 32
