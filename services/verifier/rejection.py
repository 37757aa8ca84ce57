"""Rejection sampling with a truncated draft distribution. Judges no greedy row.

Leviathan et al. 2023, Algorithm 1 (and Chen et al. 2023): a draft x drawn from q stands with
probability min(1, p(x) / q(x)); at the first that does not, the token comes from the normalised
positive part of p - q; if all stand, one more comes from p by the coupled draw. Exact for any q as
long as the draft was drawn from exactly that q, and as long as the number of drafts does not depend
on their values. All randomness is keyed by (seed, position); the test, the remainder and the
coupled draw have streams of their own, so each is independent of the noise that drew x.

q is untrusted. Where it is missing, malformed (NaN, infinite, negative, a sum off 1, an id twice or
outside the vocabulary) or gives the draft itself no probability, that position is judged by the
coupled rule instead, as if the draft were a deterministic proposal: the target's own sample is
drawn and the draft stands iff it equals it, which is exact whatever the draft is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import noise
from minedraft.model.gumbel_max import draw_by_weight
from minedraft.model.noise import Stream
from minedraft.model.sampling import BROKEN, Position, distributions, draw
from minedraft.services.verifier.outcome import AcceptItem, Outcome, num_usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.draw_rows import DrawKernel

_Place = tuple[int, int]
"""A row of the call, and the number of drafts before the token."""

_SUM_TOLERANCE: Final = 1e-3  # 64 float32 probabilities are off by far less


def judge(
    logits: Tensor,
    items: Sequence[AcceptItem],
    firsts: Sequence[int],
    kernel: DrawKernel | None = None,
) -> list[Outcome]:
    """Judge the drafts of rows that sample.

    Args:
        logits: [rows, V] of the target, any float type; not modified.
        items: Rows with temperature > 0.
        firsts: For each item the row of logits of its first draft.
        kernel: Of `sampling.draw`.

    Returns:
        One outcome an item, without logprobs.
    """
    checked = [_checked_q(item, logits.shape[1]) for item in items]
    with_q: list[_Place] = []
    without: list[_Place] = []  # and the place after all drafts
    for n, row_q in enumerate(checked):
        for i in range(len(row_q) + 1):
            has_q = i < len(row_q) and row_q[i] is not None
            (with_q if has_q else without).append((n, i))

    def at(places: Sequence[_Place]) -> tuple[Tensor, list[Position]]:
        return logits[[firsts[n] + i for n, i in places]], [
            Position(items[n].row, items[n].draft_token_ids[:i]) for n, i in places
        ]

    p = dict(zip(with_q, distributions(*at(with_q)), strict=True)) if with_q else {}
    y = dict(zip(without, draw(*at(without), kernel), strict=True))
    outcomes: list[Outcome] = []
    rejected: list[_Rejected] = []
    for n, (item, row_q) in enumerate(zip(items, checked, strict=True)):
        outcome = Outcome([], 0)
        outcomes.append(outcome)
        for i, token in enumerate(item.draft_token_ids[: len(row_q)]):
            q = row_q[i]
            if q is None:
                if y[n, i] != token:
                    outcome.token_ids.append(y[n, i])
                    break
            elif not _stands(item, i, q, *p[n, i]):
                rejected.append(_Rejected(outcome, item, i, *p[n, i], q))
                break
            outcome.token_ids.append(token)
            outcome.num_accepted += 1
        else:
            outcome.token_ids.append(y[n, len(row_q)])
    if rejected:
        _recover(rejected)
    return outcomes


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A row whose i-th draft was rejected by its q: the next token is still to be drawn."""

    outcome: Outcome
    item: AcceptItem
    i: int
    ids: Tensor
    p: Tensor
    q: dict[int, float]

    def rest(self) -> Tensor:
        """[n] float64: what p has above q, not normalised."""
        rest = (self.p - _dense(self.q, self.ids)).clamp_(min=0.0)
        return rest if bool((rest > 0).any()) else self.p  # p = q up to rounding

    def key(self) -> int:
        """Key of the draw."""
        row = self.item.row
        return noise.row_key(row.params.seed, row.num_tokens + self.i, Stream.RESIDUAL)


def _stands(item: AcceptItem, i: int, q: dict[int, float], ids: Tensor, p: Tensor) -> bool:
    token = item.draft_token_ids[i]
    u = noise.uniform_at(item.row.params.seed, item.row.num_tokens + i, Stream.ACCEPT)
    return u * q[token] < float(p[ids == token].sum())


def _recover(rejected: Sequence[_Rejected]) -> None:
    """Draw the token after each rejection, which is never the draft, and add it to its outcome."""
    for one in rejected:
        if len(one.ids) == 0:  # no distribution, in which no draft stands
            one.outcome.token_ids.append(BROKEN)
    rejected = [one for one in rejected if len(one.ids)]
    if not rejected:
        return
    device = rejected[0].p.device
    lengths = torch.tensor([len(r.ids) for r in rejected], device=device)
    rows = torch.arange(len(rejected), device=device).repeat_interleave(lengths)
    drawn = draw_by_weight(
        rows,
        torch.cat([r.ids for r in rejected]),
        torch.cat([r.rest() for r in rejected]),
        noise.row_keys([r.key() for r in rejected], device),
    )
    for one, token in zip(rejected, drawn.tolist(), strict=True):
        one.outcome.token_ids.append(token)


def _dense(q: dict[int, float], ids: Tensor) -> Tensor:
    """Probability under q of each of ids: [n] float64. `ids` are distinct."""
    size = max(int(ids.max()), *q) + 1
    lookup = torch.zeros(size, dtype=torch.float64, device=ids.device)
    lookup[torch.tensor(list(q), device=ids.device)] = torch.tensor(
        list(q.values()), dtype=torch.float64, device=ids.device
    )
    return lookup[ids]


def _checked_q(item: AcceptItem, vocab_size: int) -> list[dict[int, float] | None]:
    """For each usable draft its q, summing to 1; None where it cannot be used."""
    given = item.q or ()
    drafts = item.draft_token_ids[: num_usable(item.draft_token_ids, vocab_size)]
    checked: list[dict[int, float] | None] = []
    for i, token in enumerate(drafts):
        q = given[i] if i < len(given) else None
        checked.append(None if q is None else _checked(*q, token, vocab_size))
    return checked


def _checked(
    ids: Sequence[int], probabilities: Sequence[float], token: int, vocab_size: int
) -> dict[int, float] | None:
    if len(ids) != len(probabilities) or len(set(ids)) != len(ids):
        return None
    if not all(0 <= i < vocab_size for i in ids):
        return None
    if not all(math.isfinite(x) and x >= 0.0 for x in probabilities):
        return None
    total = math.fsum(probabilities)
    if abs(total - 1.0) > _SUM_TOLERANCE:
        return None
    q = {i: x / total for i, x in zip(ids, probabilities, strict=True)}
    return q if q.get(token, 0.0) > 0.0 else None
