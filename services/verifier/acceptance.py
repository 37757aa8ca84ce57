"""Decides which drafts are accepted, and the token after them. Runs no model.

COUPLED: the target's own position-keyed sample is drawn at every verified position, each with the
draft tokens before it as history; drafts stand as long as they equal it. What is emitted is always
the target's sample, so it cannot depend on the drafts, their number or how they were picked.
REJECTION is in `rejection`. Greedy rows are the same under both.

Drafts are untrusted: one outside the vocabulary is rejected where it stands.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from minedraft.errors import StateError
from minedraft.model.logprobs import logprobs
from minedraft.model.sampling import Position, draw
from minedraft.services.verifier import rejection
from minedraft.services.verifier.outcome import AcceptItem, Outcome, num_usable
from minedraft.types import Acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel

__all__ = ["AcceptItem", "Outcome", "accept"]


def accept(
    logits: Tensor,
    items: Sequence[AcceptItem],
    rule: Acceptance,
    kernel: DrawKernel | None = None,
) -> list[Outcome]:
    """Judge the drafts of every row.

    Args:
        logits: [sum(len(drafts) + 1), V] of the target, any float type, rows in order; the i-th of
            a row saw its first i drafts. Not modified.
        items: The rows; parameters may differ.
        rule: For temperature > 0.
        kernel: Of `sampling.draw`.

    Returns:
        One outcome a row: its accepted drafts and one more token. Where the logits that decide
        that one are no distribution, the last accepted draft takes its place; without any it is
        `BROKEN`, as it is without drafts.

    Raises:
        StateError: The number of rows of logits is another.
    """
    *firsts, num_rows = accumulate((len(i.draft_token_ids) + 1 for i in items), initial=0)
    if logits.ndim != 2 or logits.shape[0] != num_rows:  # noqa: PLR2004 [rows, V]
        raise StateError(f"logits of shape {tuple(logits.shape)} for {num_rows} positions")
    by_q = [
        n
        for n, item in enumerate(items)
        if rule is Acceptance.REJECTION and not item.row.params.is_greedy
    ]
    others = sorted(set(range(len(items))) - set(by_q))
    outcomes: dict[int, Outcome] = {}
    for chosen, judge in ((others, _judge_coupled), (by_q, rejection.judge)):
        if chosen:
            judged = judge(logits, [items[n] for n in chosen], [firsts[n] for n in chosen], kernel)
            outcomes.update(zip(chosen, judged, strict=True))
    result = [outcomes[n] for n in range(len(items))]
    for outcome in result:
        outcome.hold_off()
    _add_logprobs(logits, items, firsts, result)
    return result


def _judge_coupled(
    logits: Tensor,
    items: Sequence[AcceptItem],
    firsts: Sequence[int],
    kernel: DrawKernel | None,
) -> list[Outcome]:
    indices: list[int] = []
    positions: list[Position] = []
    for item, first in zip(items, firsts, strict=True):
        for i in range(num_usable(item.draft_token_ids, logits.shape[1]) + 1):
            indices.append(first + i)
            positions.append(Position(item.row, item.draft_token_ids[:i]))
    drawn = iter(
        draw(logits if len(indices) == len(logits) else logits[indices], positions, kernel)
    )
    outcomes: list[Outcome] = []
    for item in items:
        num_drafts = num_usable(item.draft_token_ids, logits.shape[1])
        tokens = [next(drawn) for _ in range(num_drafts + 1)]
        accepted = 0
        while accepted < num_drafts and tokens[accepted] == item.draft_token_ids[accepted]:
            accepted += 1
        outcomes.append(Outcome(tokens[: accepted + 1], accepted))
    return outcomes


def _add_logprobs(
    logits: Tensor,
    items: Sequence[AcceptItem],
    firsts: Sequence[int],
    outcomes: Sequence[Outcome],
) -> None:
    indices: list[int] = []
    token_ids: list[int] = []
    counts: list[int] = []
    for item, first, outcome in zip(items, firsts, outcomes, strict=True):
        count = item.row.params.logprobs
        if count is not None and not outcome.is_broken:
            indices += range(first, first + len(outcome.token_ids))
            token_ids += outcome.token_ids
            counts += [count] * len(outcome.token_ids)
    entries = iter(logprobs(logits[indices], token_ids, counts) if indices else ())
    for item, outcome in zip(items, outcomes, strict=True):
        if item.row.params.logprobs is not None and not outcome.is_broken:
            outcome.logprobs = [next(entries) for _ in outcome.token_ids]
