"""A runner without a model: its logits are a pure function of the KV it was really given.

Every slot of the pool holds the token that was fed at it and a hash of what was before it when it
was written. A step reads all slots before it, as attention does: KV that was built on a wrong
token, never written, or overwritten by another row gives another next token. `next_token` is what a
clean history gives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from minedraft.model.batch import RowInput, check_rows
from minedraft.types import ModelInfo

VOCAB = 31
CONTEXT = 96
_START = 17


def mix(state: int, token: int) -> int:
    """KV of one position: from the KV before it and its token."""
    return (state * 1_000_003 + token * 7919 + 12_345) % (2**31 - 1)


def next_token(history: Sequence[int]) -> int:
    """What follows a clean history."""
    state = _START
    for token in history:
        state = mix(state, token)
    return state % VOCAB


def continuation(history: Sequence[int], length: int) -> list[int]:
    """Plain decoding."""
    tokens = list(history)
    for _ in range(length):
        tokens.append(next_token(tokens))
    return tokens[len(history) :]


class FakeRunner:
    """See the module docstring."""

    draw_kernel = None

    def __init__(
        self, *, num_blocks: int = 64, block_size: int = 4, poison: Collection[int] = ()
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.info = ModelInfo("fake", VOCAB, CONTEXT, "f", "float32")
        self.device = torch.device("cpu")
        self.calls: list[list[RowInput]] = []
        self.broken: frozenset[int] = frozenset()
        self.widths: list[bool] = []
        """Of each call, whether it may use spare threads."""
        self._is_wide = False
        self._poison = frozenset(poison)
        """Tokens that the model has no numbers for: everything after one is NaN."""
        self._pool: dict[tuple[int, int], tuple[int, int]] = {}

    def widen(self, *, is_wide: bool) -> None:
        self._is_wide = is_wide

    @property
    def num_fed(self) -> int:
        """Tokens fed so far."""
        return sum(len(row.token_ids) for call in self.calls for row in call)

    def forward(self, rows: Sequence[RowInput]) -> torch.Tensor:
        check_rows(
            rows, block_size=self.block_size, num_blocks=self.num_blocks, max_model_len=CONTEXT
        )
        self.widths.append(self._is_wide)
        self.calls.append(list(rows))
        logits: list[torch.Tensor] = []
        broken = set()
        for index, row in enumerate(rows):
            state, states = self._context(row), []
            is_poisoned = any(
                self._pool.get(self._slot(row, position), (-1, -1))[0] in self._poison
                for position in range(row.start)
            )
            sound = [
                not is_poisoned and self._poison.isdisjoint(row.token_ids[: n + 1])
                for n in range(len(row.token_ids))
            ]
            if not sound[len(sound) - max(row.num_logits, 1)]:
                broken.add(index)
            for position, token in enumerate(row.token_ids, start=row.start):
                assert 0 <= token < VOCAB
                state = mix(state, token)
                self._pool[self._slot(row, position)] = (token, state)
                states.append(state)
            for n in range(len(states) - row.num_logits, len(states)):
                wanted = torch.zeros(VOCAB)
                wanted[states[n] % VOCAB] = 10.0
                logits.append(wanted if sound[n] else wanted.fill_(torch.nan))
        self.broken = frozenset(broken)
        return torch.stack(logits) if logits else torch.zeros((0, VOCAB))

    def _slot(self, row: RowInput, position: int) -> tuple[int, int]:
        return row.block_ids[position // self.block_size], position % self.block_size

    def _context(self, row: RowInput) -> int:
        """What attention makes of the slots before the first one that is fed."""
        state = _START
        for position in range(row.start):
            token, written = self._pool.get(self._slot(row, position), (-1, -1))
            state = mix(state, token)
            if state != written:  # built on something else
                state = mix(state, written + 1)
        return state
