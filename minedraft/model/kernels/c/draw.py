"""The draw in C: one call for all rows of a step.

Knows no processors and no history. A row that it leaves undecided is the caller's.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, cast

import torch

from minedraft.errors import StateError

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.draw_rows import DrawRows
    from minedraft.model.kernels.c.library import Library
    from minedraft.model.kernels.c.pool import Pool

_CODES: Final = {torch.float32: 0, torch.bfloat16: 1}
_NO_SCORE, _MARGIN, _SURPRISAL = range(3)
_TRIES: Final = 64
"""Draws per row until top-p keeps one. Each halves what is left to draw from, more or less: e**-40
of all rows need more."""


class Draw:
    """See the module docstring.

    Args:
        library: The kernels.
        pool: Their threads; None: the calling thread alone.
        tries: Draws per row, before it is left undecided.
    """

    def __init__(self, library: Library, pool: Pool | None, *, tries: int = _TRIES) -> None:
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        self._draw = library.function(
            "md_draw",
            *(pointer, pointer, ctypes.c_int32, size, size, size),
            *[pointer] * 7,
            *(size, pointer, pointer, ctypes.c_int32, pointer),
        )
        self._scratch_size = library.raw("md_draw_scratch", size, size)
        self._pool = pool
        self._tries = tries
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def __call__(self, logits: Tensor, rows: DrawRows) -> Tensor:
        """Draw one token per row.

        Args:
            logits: [N, V] on the CPU, of any float type; not modified.
            rows: R of them; their places are below N.

        Returns:
            [R] int64: ids, `BROKEN` or `UNDECIDED`.

        Raises:
            StateError: A place is not a row of logits.
        """
        return self._run(logits, rows, _NO_SCORE, None)

    def scored(
        self, logits: Tensor, rows: DrawRows, *, is_surprisal: bool
    ) -> tuple[Tensor, Tensor]:
        """Draw the same tokens, and score them: see `DrawKernel`."""
        scores = torch.empty(len(rows), dtype=torch.float32)
        tokens = self._run(logits, rows, _SURPRISAL if is_surprisal else _MARGIN, scores)
        return tokens, scores

    def _run(self, logits: Tensor, rows: DrawRows, what: int, scores: Tensor | None) -> Tensor:
        if logits.dtype not in _CODES:
            logits = logits.float()
        if logits.stride(1) != 1:
            logits = logits.contiguous()
        tokens = torch.empty(len(rows), dtype=torch.int64)
        if not len(rows):
            return tokens
        low, high = (int(x) for x in torch.aminmax(rows.places))
        if low < 0 or high >= len(logits):
            raise StateError(f"places: {low}..{high} is outside 0..{len(logits) - 1}")
        scratch = self._reserve(logits.shape[1])
        self._draw(
            None if self._pool is None else self._pool.handle,
            logits.data_ptr(),
            _CODES[logits.dtype],
            logits.stride(0),
            logits.shape[1],
            len(rows),
            *(
                x.data_ptr()
                for x in (
                    rows.places, rows.seeds, rows.positions, rows.temperatures, rows.top_k,
                    rows.top_p, rows.log_min_p,
                )
            ),
            self._tries,
            scratch.data_ptr(),
            tokens.data_ptr(),
            what,
            None if scores is None else scores.data_ptr(),
        )  # fmt: skip
        return tokens

    def _reserve(self, vocab_size: int) -> Tensor:
        threads = 1 if self._pool is None else self._pool.threads
        size = cast("int", self._scratch_size(vocab_size)) * threads
        if self._scratch.numel() < size:
            with torch.inference_mode(mode=False):
                self._scratch = torch.empty(size, dtype=torch.uint8)
        return self._scratch
