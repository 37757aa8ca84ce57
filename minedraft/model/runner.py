"""Runs a loaded model over its KV pool: packed rows in, logits out.

Refuses to allocate blocks, to sample or to know requests. Not thread-safe: one `DeviceExecutor`
owns it.

What a row gets depends on its own tokens up to each position and on nothing else, whatever is NaN
elsewhere: in blocks that others have left, in the batch, or in the row's own later tokens. A row in
which something is not finite is run again by itself, so that only what is really broken stays so.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import torch

from minedraft.errors import StateError
from minedraft.model.attention import PagedStep
from minedraft.model.batch import RowInput, check_rows
from minedraft.model.soundness import Witness
from minedraft.model.step_meta import plan_step, stale_slots

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.model.draw_rows import DrawKernel
    from minedraft.model.kernels.interface import Kernels
    from minedraft.model.kv_pool import KVPool
    from minedraft.types import ModelInfo


class ModelRunner:
    """Runs packed forward passes of one model over one KV pool.

    Args:
        model: Loaded with `minedraft.model.attention.ATTENTION_NAME`, in eval mode.
        pool: Its keys and values.
        kernels: The arithmetic.
        info: What the model is.
        device: Where model and pool live.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pool: KVPool,
        *,
        kernels: Kernels,
        info: ModelInfo,
        device: torch.device,
    ) -> None:
        self.info = info
        self.device = device
        self.block_size = pool.block_size
        self.num_blocks = pool.num_blocks
        self.lead: Callable[[Sequence[RowInput]], AbstractContextManager[None]] = _alone
        """Context around each forward pass, with its checked rows: sends them to other ranks."""
        self.broken: frozenset[int] = frozenset()
        """Indices of the rows of the last `forward` that the model has no numbers for already up to
        the first position whose logits were wanted (without any: in all they fed)."""
        self._model = model
        self._head = model.get_output_embeddings()
        self._pool = pool
        self._kernels = kernels

    @property
    def draw_kernel(self) -> DrawKernel | None:
        """How `sampling` draws from the logits; None: in torch."""
        return self._kernels.draw

    def widen(self, *, is_wide: bool) -> None:
        """Run the next passes on the spare threads too, or not."""
        self._kernels.widen(is_wide=is_wide)

    def forward(self, rows: Sequence[RowInput]) -> Tensor:
        """Feed every row's tokens, write their keys and values, return the logits asked for.

        Repeatable: feeding the same row again, or one with a smaller start, overwrites what was
        written from there on.

        Args:
            rows: At least one; any mix of prefill chunks and verify rows.

        Returns:
            [sum(num_logits), V] in the model's dtype, rows in order. NaN from the first position of
            a row on that the model has no numbers for; see also `broken`.

        Raises:
            StateError: A row does not fit its blocks, the context or the vocabulary.
        """
        logits, unsound = self._run(rows)
        broken = set()
        for index in unsound:
            first = sum(row.num_logits for row in rows[:index])
            mended = self._run_alone(rows[index])
            if mended is None:
                broken.add(index)
            with torch.inference_mode():
                wanted = logits[first : first + rows[index].num_logits]
                wanted.fill_(torch.nan)
                if mended is not None:
                    wanted[: len(mended)] = mended
        self.broken = frozenset(broken)
        return logits

    def feed(self, rows: Sequence[RowInput]) -> None:
        """Run one forward pass without checks: the part of a rank other than 0.

        Raises:
            StateError: as `forward`.
        """
        self._run(rows)

    def _run_alone(self, row: RowInput) -> Tensor | None:
        """Run a row again, alone and over cleared slots, later tokens after earlier ones.

        A mask does not keep NaN out: 0 * NaN is NaN. So no position may have a later one, or what
        an earlier try left there, among its keys.

        Returns:
            [n, V] logits of its first n positions, n <= num_logits; None if it is broken.
        """
        size = len(row.token_ids)
        ends = [size] if row.num_logits == 0 else range(size - row.num_logits + 1, size + 1)
        logits: list[Tensor] = []
        begin = 0
        for end in ends:
            tokens = row.token_ids[begin:end]
            piece = RowInput(
                tokens, row.start + begin, row.block_ids, min(row.num_logits, 1), is_clean=True
            )
            found, unsound = self._run([piece])
            if unsound:
                break
            logits.append(found)
            begin = end
        return torch.cat(logits) if logits else None

    def _run(self, rows: Sequence[RowInput]) -> tuple[Tensor, list[int]]:
        """Run one forward pass.

        Returns:
            Logits as of `forward`, and the rows in which something is not finite.
        """
        check_rows(
            rows,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            max_model_len=self.info.max_model_len,
        )
        with torch.inference_mode():
            meta = plan_step(rows, block_size=self.block_size, device=self.device)
            low, high = (int(x) for x in torch.aminmax(meta.input_ids))
            if low < 0 or high >= self.info.vocab_size:
                raise StateError(
                    f"token_ids: {low}..{high} is outside 0..{self.info.vocab_size - 1}"
                )
            step, witness = PagedStep(meta, self._pool, self._kernels), Witness()
            with self.lead(rows), self._head.register_forward_pre_hook(witness.look):
                if self._pool.needs_clean_slots:
                    for row in rows:
                        for block, offset in stale_slots(row, self.block_size):
                            self._pool.clear(block, offset)
                logits = self._model(
                    input_ids=meta.input_ids,
                    position_ids=meta.position_ids,
                    use_cache=False,
                    logits_to_keep=meta.logits_rows,
                    paged=step,
                ).logits[0]
            if witness.is_sound(step.last):
                return cast("Tensor", logits), []
            return cast("Tensor", logits), witness.unsound_rows(rows, step.last)


def _alone(_rows: Sequence[RowInput]) -> AbstractContextManager[None]:
    return nullcontext()
