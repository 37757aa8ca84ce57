"""The most KV blocks that were reserved at once, beside what is not reserved. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.request import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minedraft.prefix import PrefixCache
    from minedraft.services.coordinator.core.request import Request


class Reserved:
    """Peaks since start."""

    def __init__(self) -> None:
        self.peak = 0
        """Blocks that requests listed, each counted once."""
        self.peak_for_all = 0
        """The same, had every request of every batch held blocks for k drafts at that moment."""

    def look(self, blocks: PrefixCache, requests: Iterable[Request], num_draft_tokens: int) -> None:
        """Look at the pool after planning; dear only when there is a new peak.

        Args:
            blocks: The pool.
            requests: Live ones.
            num_draft_tokens: k of the service.
        """
        num_used = blocks.num_used
        if num_used <= self.peak:
            return
        self.peak = num_used
        missing = (
            blocks.blocks_for(request.num_tokens + num_draft_tokens) - len(request.block_ids)
            for request in requests
            if request.phase not in {Phase.WAITING, Phase.PREFILLING}
        )
        self.peak_for_all = max(self.peak_for_all, num_used + sum(max(n, 0) for n in missing))
