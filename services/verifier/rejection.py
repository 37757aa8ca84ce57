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
from typing import TYPE_CHECKING, Final

import torch

from minedraft.model import noise
from minedraft.model.noise import Stream
from minedraft.model.race import race
from minedraft.model.sampling import Position, distributions, draw
from minedraft.services.verifier.outcome import AcceptItem, Outcome, num_usable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_SUM_TOLERANCE: Final = 1e-3  # 64 float32 probabilities are off by far less


def judge(logits: Tensor, items: Sequence[AcceptItem], firsts: Sequence[int]) -> list[Outcome]:
    """Judge the drafts of rows that sample.

    Args:
        logits: [rows, V] of the target, any float type; not modified.
        items: Rows with temperature > 0.
        firsts: For each item the row of logits of its first draft.

    Returns:
        One outcome an item, without logprobs.
    """
    return _Judge(logits, items, firsts).outcomes()


class _Judge:
    """One call of `judge`: what is drawn for all rows at once, and the walk along each."""

    def __init__(self, logits: Tensor, items: Sequence[AcceptItem], firsts: Sequence[int]) -> None:
        self._items = items
        self._q = [_checked_q(item, logits.shape[1]) for item in items]
        self._p: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._y: dict[tuple[int, int], int] = {}
        with_q: list[tuple[int, int]] = []
        without: list[tuple[int, int]] = []  # and the place after all drafts
        for n, checked in enumerate(self._q):
            for i in range(len(checked) + 1):
                has_q = i < len(checked) and checked[i] is not None
                (with_q if has_q else without).append((n, i))
        if with_q:
            p = distributions(*self._at(logits, firsts, with_q))
            self._p = dict(zip(with_q, p, strict=True))
        y = draw(*self._at(logits, firsts, without))
        self._y = dict(zip(without, y, strict=True))

    def _at(
        self, logits: Tensor, firsts: Sequence[int], places: Sequence[tuple[int, int]]
    ) -> tuple[Tensor, list[Position]]:
        rows = [firsts[n] + i for n, i in places]
        return logits[rows], [
            Position(self._items[n].row, self._items[n].draft_token_ids[:i]) for n, i in places
        ]

    def outcomes(self) -> list[Outcome]:
        return [self._walk(n, item) for n, item in enumerate(self._items)]

    def _walk(self, n: int, item: AcceptItem) -> Outcome:
        num_bad = 0
        for i, q in enumerate(self._q[n]):
            token = item.draft_token_ids[i]
            if q is None:
                num_bad += 1
                emitted = self._y[n, i]
            else:
                emitted = self._by_q(n, i, q)
            if emitted != token:
                return Outcome([*item.draft_token_ids[:i], emitted], i, num_bad_q=num_bad)
        num_drafts = len(self._q[n])
        tokens = [*item.draft_token_ids[:num_drafts], self._y[n, num_drafts]]
        return Outcome(tokens, num_drafts, num_bad_q=num_bad)

    def _by_q(self, n: int, i: int, q: dict[int, float]) -> int:
        """The draft if it stands, else a token of the remainder, which is never the draft."""
        item = self._items[n]
        seed, position = item.row.params.seed, item.row.num_tokens + i
        token = item.draft_token_ids[i]
        ids, p = self._p[n, i]
        p_token = float(p[ids == token].sum())
        if noise.uniform_at(seed, position, Stream.ACCEPT) * q[token] < p_token:
            return token
        rest = (p - _dense(q, ids)).clamp_(min=0.0)
        if not bool((rest > 0).any()):  # p = q up to rounding
            rest = p
        return race(rest, ids, noise.row_key(seed, position, Stream.RESIDUAL))


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
