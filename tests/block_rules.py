"""Watches a request table: whom blocks are allocated for, and what they cost the others.

What must hold, whatever happens: a block is freed by preemption only for committed tokens. Drafts
get free blocks, and leave what each running request needs for its next token.
"""

from __future__ import annotations

from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.services.coordinator.core.request_table import RequestTable


class BlockRules:
    """See the module docstring.

    Args:
        table: Its `allocate` and `allocate_drafts` are wrapped.
    """

    def __init__(self, table: RequestTable) -> None:
        self.table = table
        self.num_short = 0
        """Rows that got fewer drafts than were asked for."""
        self.short: dict[int, int] = {}
        """By row: the k that fitted, of rows that got fewer than were asked for."""
        self._allocate, self._allocate_drafts = table.allocate, table.allocate_drafts
        table.allocate, table.allocate_drafts = self.allocate, self.allocate_drafts

    def allocate(self, request: Request, num_positions: int) -> bool:
        assert num_positions <= request.num_tokens, "positions of drafts may not preempt"
        self.short.pop(request.row_id, None)
        return self._allocate(request, num_positions)

    def allocate_drafts(self, request: Request, k: int) -> int:
        blocks = self.table.blocks
        before = self._phases(), self.table.num_preemptions
        promised = sum(self._next_need(other) for other in self.others(request))
        num_free, num_held = blocks.num_free, len(request.block_ids)
        wanted = blocks.blocks_for(request.num_tokens + k) - num_held
        fits = self._allocate_drafts(request, k)
        assert (self._phases(), self.table.num_preemptions) == before, "a draft preempts no request"
        taken = len(request.block_ids) - num_held
        assert taken == min(max(wanted, 0), max(num_free - promised, 0)), (
            "all that others do not need"
        )
        room = len(request.block_ids) * blocks.block_size - request.num_tokens
        assert fits == min(k, room)
        if fits < k:
            self.num_short += 1
            self.short[request.row_id] = fits
        return fits

    def others(self, request: Request) -> list[Request]:
        return [other for other in self.table.live.values() if other is not request]

    def _phases(self) -> dict[str, Phase]:
        return {request_id: request.phase for request_id, request in self.table.live.items()}

    def _next_need(self, request: Request) -> int:
        """Blocks that a running request lacks, at the most, when it is planned again."""
        if request.phase is Phase.WAITING:
            return 0
        length = request.num_tokens
        for step in self.table.in_flight.values():
            if request.row_id in step.requests:
                length += step.num_draft_tokens[request.row_id] + 1
        if request.row_id in self.table._planned:
            length += 1
        return max(self.table.blocks.blocks_for(length) - len(request.block_ids), 0)
