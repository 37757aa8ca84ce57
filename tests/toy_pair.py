"""A toy pair of models whose logits are pure functions of the history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from minedraft.model.sampling import Position, SamplingRow, distributions, draw, draw_with_q
from minedraft.services.verifier.acceptance import AcceptItem, Outcome, accept
from minedraft.types import Acceptance, RowParams

PROMPT = (1, 2)


@dataclass
class Toy:
    """Next-token logits by the last two tokens: [V, V, V]."""

    vocab_size: int = 8
    seed: int = 0
    spread: float = 1.2
    table: torch.Tensor = field(init=False)

    def __post_init__(self):
        generator = torch.Generator().manual_seed(self.seed)
        self.table = torch.randn([self.vocab_size] * 3, generator=generator) * self.spread

    def near(self, noise: float) -> Toy:
        """A model that resembles this one: a drafter."""
        other = Toy(self.vocab_size, self.seed + 1, noise)
        other.table = self.table + other.table
        return other

    def logits(self, histories) -> torch.Tensor:
        """[R, V]; ids outside the vocabulary in a history count as 0."""
        pairs = [[t if 0 <= t < self.vocab_size else 0 for t in h[-2:]] for h in histories]
        pairs = torch.tensor(pairs)
        return self.table[pairs[:, 0], pairs[:, 1]]

    def draft(self, rows, ks, width=0, uncoupled_seed=None):
        """Draft ks[r] tokens for each row; with q if width > 0."""
        drafts = [[] for _ in rows]
        qs = [[] for _ in rows]
        for step in range(max(ks, default=0)):
            live = [r for r, k in enumerate(ks) if step < k]
            positions = [Position(rows[r], drafts[r]) for r in live]
            if uncoupled_seed is not None:
                positions = [
                    Position(_reseeded(p.row, uncoupled_seed), p.draft_prefix) for p in positions
                ]
            logits = self.logits([history(rows[r], drafts[r]) for r in live])
            if width:
                tokens, q = draw_with_q(logits, positions, width)
            else:
                tokens, q = draw(logits, positions), [None] * len(live)
            for r, token, q_row in zip(live, tokens, q, strict=True):
                drafts[r].append(token)
                qs[r].append(q_row)
        return drafts, qs


def history(row, prefix=()):
    return [*row.prompt_token_ids, *row.output_token_ids, *prefix]


def _reseeded(row: SamplingRow, offset: int) -> SamplingRow:
    params = replace(row.params, seed=(row.params.seed + offset) % 2**64)
    return SamplingRow(params, row.prompt_token_ids, row.output_token_ids)


def verify(target: Toy, rows, drafts, qs=None, rule=Acceptance.COUPLED) -> list[Outcome]:
    """One verify step: logits at every position, acceptance, commit."""
    histories = [
        history(r, d[:i]) for r, d in zip(rows, drafts, strict=True) for i in range(len(d) + 1)
    ]
    qs = qs or [None] * len(rows)
    items = [AcceptItem(r, d, q or None) for r, d, q in zip(rows, drafts, qs, strict=True)]
    outcomes = accept(target.logits(histories), items, rule)
    for row, outcome in zip(rows, outcomes, strict=True):
        row.set_committed(row.num_tokens + len(outcome.token_ids), outcome.token_ids)
    return outcomes


def open_rows(params) -> list[SamplingRow]:
    return [SamplingRow(p, PROMPT) for p in params]


def plain(target: Toy, params, length: int) -> list[list[int]]:
    """The k = 0 run: one token per step."""
    rows = open_rows(params)
    for _ in range(length):
        verify(target, rows, [[] for _ in rows])
    return [r.output_token_ids for r in rows]


def exact_law(target: Toy, params: RowParams, length: int) -> torch.Tensor:
    """Probabilities of all sequences of `length` tokens after the prompt, flat: [V ** length]."""
    size = target.vocab_size
    law = {(): 1.0}
    for _ in range(length):
        longer = {}
        for prefix, probability in law.items():
            row = SamplingRow(params, PROMPT, prefix)
            logits = target.logits([history(row)])
            ((ids, p),) = distributions(logits, [Position(row)])
            for token, x in zip(ids.tolist(), p.tolist(), strict=True):
                longer[(*prefix, token)] = probability * x
        law = longer
    flat = torch.zeros(size**length, dtype=torch.float64)
    for tokens, probability in law.items():
        flat[index_of(tokens, size)] += probability
    return flat


def index_of(tokens, size: int) -> int:
    index = 0
    for token in tokens:
        index = index * size + token
    return index
