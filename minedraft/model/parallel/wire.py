"""Encodes the rows of a step as int32 words for the other ranks. Pure but torch.

Layout: [magic, order, num_words, num_rows], then five words a row (tokens, start, blocks, logits,
is_clean), then all token ids, then all block ids. A frame of fixed size carries the beginning; what
does not fit into it follows in a second message of the length that the header says.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import ProtocolError
from minedraft.model.batch import RowInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FRAME_WORDS: Final = 4096
"""16 KiB: a verify step of 32 rows of 1000 positions fits, so it is one message."""
_MAGIC: Final = 0x4D445250
_HEADER_WORDS: Final = 4
_ROW_WORDS: Final = 5


class Order(IntEnum):
    """Orders to the other ranks."""

    STEP = 1
    """Run one forward pass over the rows that follow."""
    STOP = 2
    """End."""


def encode(rows: Sequence[RowInput]) -> Tensor:
    """Rows -> words; no rows: the order to stop.

    Returns:
        [num_words] int32.
    """
    order = Order.STEP if rows else Order.STOP
    shape = chain.from_iterable(
        (len(row.token_ids), row.start, len(row.block_ids), row.num_logits, int(row.is_clean))
        for row in rows
    )
    body = [
        *shape,
        *chain.from_iterable(row.token_ids for row in rows),
        *chain.from_iterable(row.block_ids for row in rows),
    ]
    return torch.tensor(
        [_MAGIC, order, _HEADER_WORDS + len(body), len(rows), *body], dtype=torch.int32
    )


def num_words(frame: Tensor) -> int:
    """Return the number of words of the message that begins with this frame.

    Raises:
        ProtocolError: this is no message: the ranks are out of step.
    """
    magic, order, length, _rows = frame[:_HEADER_WORDS].tolist()
    if magic != _MAGIC or order not in tuple(Order) or length < _HEADER_WORDS:
        raise ProtocolError(f"ranks are out of step: header {magic:#x} {order} {length}")
    return int(length)


def decode(words: Tensor) -> list[RowInput]:
    """Words -> rows; none: stop.

    Raises:
        ProtocolError: the lengths do not add up.
    """
    values: list[int] = words.tolist()
    rows = values[3]
    shape_end = _HEADER_WORDS + _ROW_WORDS * rows
    shapes = [values[at : at + _ROW_WORDS] for at in range(_HEADER_WORDS, shape_end, _ROW_WORDS)]
    token_at = shape_end
    block_at = token_at + sum(shape[0] for shape in shapes)
    if block_at + sum(shape[2] for shape in shapes) != len(values):
        raise ProtocolError(f"ranks are out of step: {rows} rows in {len(values)} words")
    decoded = []
    for num_tokens, start, num_blocks, num_logits, is_clean in shapes:
        decoded.append(
            RowInput(
                token_ids=values[token_at : token_at + num_tokens],
                start=start,
                block_ids=values[block_at : block_at + num_blocks],
                num_logits=num_logits,
                is_clean=bool(is_clean),
            )
        )
        token_at += num_tokens
        block_at += num_blocks
    return decoded
