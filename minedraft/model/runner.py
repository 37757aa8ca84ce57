"""A loaded model with its KV pool: packed rows in, logits out.

Refuses to allocate blocks, to sample or to know requests. Not thread-safe: one `DeviceExecutor`
owns it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import torch

from minedraft.errors import StateError
from minedraft.model.attention import PagedStep
from minedraft.model.batch import check_rows
from minedraft.model.step_meta import plan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.model.batch import RowInput
    from minedraft.model.kv_pool import KVPool
    from minedraft.types import ModelInfo


class ModelRunner:
    """Runs packed forward passes of one model over one KV pool.

    Args:
        model: Loaded with `minedraft.model.attention.ATTENTION_NAME`, in eval mode.
        pool: Its keys and values.
        info: What the model is.
        device: Where model and pool live.
    """

    def __init__(
        self, model: PreTrainedModel, pool: KVPool, *, info: ModelInfo, device: torch.device
    ) -> None:
        self.info = info
        self.device = device
        self.block_size = pool.block_size
        self.num_blocks = pool.num_blocks
        self.lead: Callable[[Sequence[RowInput]], AbstractContextManager[None]] = _alone
        """Around each forward pass, with its checked rows: tells the other ranks, if there are."""
        self._model = model
        self._pool = pool

    def forward(self, rows: Sequence[RowInput]) -> Tensor:
        """Feed every row's tokens, write their keys and values, return the logits asked for.

        Repeatable: feeding the same row again, or one with a smaller start, overwrites what was
        written from there on.

        Args:
            rows: At least one; any mix of prefill chunks and verify rows.

        Returns:
            [sum(num_logits), V] in the model's dtype, rows in order.

        Raises:
            StateError: A row does not fit its blocks, the context or the vocabulary.
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
            with self.lead(rows):
                logits = self._model(
                    input_ids=meta.input_ids,
                    position_ids=meta.position_ids,
                    use_cache=False,
                    logits_to_keep=meta.logits_rows,
                    paged=PagedStep(meta, self._pool),
                ).logits
        return cast("Tensor", logits[0])


def _alone(_rows: Sequence[RowInput]) -> AbstractContextManager[None]:
    return nullcontext()
