"""Tests: proposes the reference tokens of a request's debug options, without a model step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.services.drafter.proposer import DraftContext, Drafting


class ScriptedProposer:
    """See the module docstring. It has no KV cache, so it is never behind."""

    reads_kv = False

    def __init__(self, _context: DraftContext) -> None:
        pass

    def propose(self, batch: Sequence[Drafting]) -> int:
        """See `Proposer`."""
        for item in batch:
            for token in item.row.reference(0, item.planned.num_draft_tokens):
                if not item.wants_more:
                    break
                item.add(token)
        return 0

    def go_on(self, batch: Sequence[Drafting]) -> None:
        """See `Proposer`. A row whose reference ends is broken."""
        for item in batch:
            tokens = item.row.reference(len(item.drafts), 1)
            item.is_broken = not tokens
            for token in tokens:
                item.add(token)
