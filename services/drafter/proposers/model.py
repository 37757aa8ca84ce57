"""Proposes what a causal language model draws: k forward passes per step, all rows side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from minedraft.model.sampling import BROKEN, Position, draw, draw_with_q
from minedraft.model.scored_draw import draw_scored
from minedraft.plans import Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.services.drafter.proposer import Candidates, DraftContext, Drafting


class Imposed(NamedTuple):
    """A proposal in place of what the model drew."""

    token: int
    score: float | None = None
    """None: what a delta has."""


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

    def propose(self, batch: Sequence[Drafting]) -> int:
        """See `Proposer`."""
        num_passes = 0
        due = [item for item in batch if item.due]
        drafting = [item for item in batch if not item.due and item.wants_more]
        while due or drafting:
            with self._watch.measure("forward"):
                feeds = [item.feed_due() for item in due] + [item.feed_draft() for item in drafting]
                logits = self._runner.forward(feeds)
            for index in self._runner.broken:
                if index < len(due):
                    due[index].is_hopeless = True
            drafting = [item for item in due if item.is_ready] + drafting
            self._extend(drafting, logits)
            due, drafting = [], [item for item in drafting if item.wants_more]
            num_passes += 1
        return num_passes

    def go_on(self, batch: Sequence[Drafting]) -> None:
        """See `Proposer`."""
        with self._watch.measure("forward"):
            logits = self._runner.forward([item.feed_draft() for item in batch])
        self._extend(batch, logits)

    def impose(self, item: Drafting, drawn: int) -> Imposed | None:  # noqa: ARG002 of other kinds
        """Return what to propose in place of the drawn one; None: the drawn one.

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
            drawn, q, scores = self._draw(logits, positions, items[0].score)
        for index, (item, token) in enumerate(zip(items, drawn, strict=True)):
            if token == BROKEN:
                item.is_broken = True
                continue
            imposed = self.impose(item, token)
            if imposed is not None:
                item.add(imposed.token, score=imposed.score)
            else:
                item.add(token, q[index] if q else None, scores[index] if scores else None)

    def _draw(
        self, logits: Tensor, positions: Sequence[Position], score: Score
    ) -> tuple[list[int], list[Candidates], list[float]]:
        """Tokens, their distributions if these travel, and their scores if the step has any."""
        kernel = self._runner.draw_kernel
        if score is Score.NONE and not self._q_width:
            return draw(logits, positions, kernel), [], []
        tokens: list[int] = []
        q: list[Candidates] = []
        scores: list[float] = []
        if score is not Score.NONE:
            is_surprisal = score is Score.SURPRISAL
            tokens, scores = draw_scored(logits, positions, kernel, is_surprisal=is_surprisal)
        if self._q_width:  # sampled rows draw otherwise; their scores are of no use there
            tokens, q = draw_with_q(logits, positions, self._q_width, kernel)
        return tokens, q, scores
