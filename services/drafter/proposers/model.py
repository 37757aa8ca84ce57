"""Proposes what a causal language model draws: k forward passes per step, all rows side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.model.sampling import BROKEN, Position, draw, draw_with_q

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.services.drafter.proposer import DraftContext, Drafting


class ModelProposer:
    """See the module docstring.

    Args:
        context: The model, and how wide its distributions travel.
    """

    reads_kv = True

    def __init__(self, context: DraftContext) -> None:
        self._runner = context.runner
        self._watch = context.watch
        self._q_width = context.q_width

    def propose(self, batch: Sequence[Drafting]) -> None:
        """See `Proposer`."""
        drafting = [item for item in batch if item.is_ready]
        with self._watch.measure("forward"):
            logits = self._runner.forward([item.feed_due() for item in batch])
        self._extend(drafting, logits)
        for index in self._runner.broken:
            batch[index].is_hopeless = True
        while drafting := [item for item in drafting if _wants_more(item)]:
            with self._watch.measure("forward"):
                logits = self._runner.forward([item.feed_draft() for item in drafting])
            self._extend(drafting, logits)

    def impose(self, item: Drafting, drawn: int) -> int | None:  # noqa: ARG002 of other kinds
        """Return a token to propose in place of the drawn one; None: the drawn one.

        What is put in its place may equal it: it is a proposal of its own all the same.

        Args:
            item: The row; its `drafts` are those of this step before.
            drawn: What the model drew after them.
        """
        return None

    def _extend(self, items: Sequence[Drafting], logits: Tensor) -> None:
        """Draw the next draft of each row; logits [len(items), V]."""
        if not items:
            return
        positions = [Position(item.row.sampling, tuple(item.drafts)) for item in items]
        with self._watch.measure("sample"):
            kernel = self._runner.draw_kernel
            if self._q_width:
                drawn, q = draw_with_q(logits, positions, self._q_width, kernel)
            else:
                drawn, q = draw(logits, positions, kernel), []
        for index, (item, token) in enumerate(zip(items, drawn, strict=True)):
            if token == BROKEN:
                item.is_broken = True
                continue
            imposed = self.impose(item, token)
            if imposed is None:
                item.add(token, q[index] if q else None)
            else:
                item.add(imposed)


def _wants_more(item: Drafting) -> bool:
    return not item.is_broken and len(item.drafts) < item.planned.num_draft_tokens
