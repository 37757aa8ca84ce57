"""What becomes of a token that the draft model drew: the kinds of drafters. Pure.

A `model` drafter (and `oracle`, which is one with the target's weights) proposes what it drew.
The others replace tokens, to test the pipeline or to measure it at a given acceptance. None of
them can change the output: the verifier draws its own tokens, and what is put in a drawn token's
place goes to it as that, not as a draw of the model's distribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.drafter.config import DrafterKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from minedraft.services.drafter.rows import Row


def replacement(
    kind: DrafterKind,
    row: Row,
    drawn: int,
    prefix: Sequence[int],
    *,
    vocab_size: int,
    coin: Callable[[int, int], float],
) -> int | None:
    """Return the token to propose in place of the drawn one; None: the drawn one.

    A replacement may equal what it replaces: it is one all the same.

    Args:
        kind: Kind of drafter.
        row: The row.
        drawn: What the model drew after `prefix`.
        prefix: Drafts of this step before it.
        vocab_size: Rows of the embedding.
        coin: (seed, position) -> uniform in [0, 1), the same for every try of that position.
    """
    match kind:
        case DrafterKind.ANTI_ORACLE:
            return (drawn + 1) % vocab_size
        case DrafterKind.SYNTHETIC:
            reference = _reference(row, len(prefix), vocab_size)
            acceptance = row.debug.synthetic_acceptance
            if reference is None or acceptance is None:
                return None
            position = row.sampling.num_tokens + len(prefix)
            is_right = coin(row.sampling.params.seed, position) < acceptance
            return reference if is_right else (reference + 1) % vocab_size
        case DrafterKind.SCRIPTED:
            return _reference(row, len(prefix), vocab_size)
        case DrafterKind.MODEL | DrafterKind.ORACLE:
            return None


def scripted(row: Row, k: int) -> list[int]:
    """Return up to k reference tokens that follow the committed ones."""
    start = len(row.sampling.output_token_ids)
    return list(row.debug.reference_token_ids[start : start + k])


def _reference(row: Row, offset: int, vocab_size: int) -> int | None:
    """The reference's token; None past its end, and where this drafter has no such token."""
    index = len(row.sampling.output_token_ids) + offset
    reference = row.debug.reference_token_ids
    if index >= len(reference):
        return None
    token = reference[index]
    return token if token < vocab_size else None
