"""A model with rows at some context, whose steps a benchmark repeats. Measures nothing.

A pool in use has no neighbouring blocks, so these are shuffled.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from minedraft.model.batch import RowInput
from minedraft.model.loader import load_runner

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from minedraft.model.runner import ModelRunner

BLOCK = 16


class Loaded:
    """See the module docstring.

    Args:
        model: Directory.
        dtype: Of the arithmetic.
        kernels: As for `load_runner`; empty: what it does by itself, in an older checkout too.
        num_rows: Rows that have been fed.
        context: Positions that each row holds.
        room: Positions after the context that steps may write.
    """

    def __init__(
        self,
        model: str | Path,
        dtype: str = "float32",
        *,
        kernels: str = "",
        num_rows: int = 16,
        context: int = 200,
        room: int = 40,
        seed: int = 0,
    ) -> None:
        per_row = -(-(context + room) // BLOCK)
        named: dict[str, Any] = {"kernels": kernels} if kernels else {}
        self.runner: ModelRunner = load_runner(
            model, dtype=dtype, num_blocks=per_row * num_rows, block_size=BLOCK, **named
        )
        self.context = context
        rng = random.Random(seed)
        order = list(range(per_row * num_rows))
        rng.shuffle(order)
        self.tables = [order[i * per_row : (i + 1) * per_row] for i in range(num_rows)]
        vocab_size = self.runner.info.vocab_size
        self.tokens = [
            [rng.randrange(vocab_size) for _ in range(context + room)] for _ in range(num_rows)
        ]
        self.runner.forward(
            [RowInput(self.tokens[i][:context], 0, self.tables[i], 0) for i in range(num_rows)]
        )

    def rows(self, num_rows: int, num_tokens: int, *, at: int = 0) -> list[RowInput]:
        """Build a step: the first rows feed tokens and want a logit for each.

        Args:
            num_rows: Rows of the step.
            num_tokens: Tokens per row.
            at: Positions beyond the context where it begins; those before must have been fed.
        """
        start = self.context + at
        return [
            RowInput(self.tokens[i][start : start + num_tokens], start, self.tables[i], num_tokens)
            for i in range(num_rows)
        ]

    def step(self, num_rows: int, num_tokens: int) -> Tensor:
        """Run such a step at the context's end; it may be repeated. Logits [rows * tokens, V]."""
        return self.runner.forward(self.rows(num_rows, num_tokens))
