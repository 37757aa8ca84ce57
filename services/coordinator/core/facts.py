"""What others may know of the core: requests, batches, steps, totals. Decides nothing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.prefix import PrefixCache
    from minedraft.services.coordinator.core.batch_manager import BatchManager
    from minedraft.services.coordinator.core.counters import Counters
    from minedraft.services.coordinator.core.planner import Planner
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.request_table import RequestTable
    from minedraft.services.coordinator.core.shaper import Shaper
    from minedraft.services.coordinator.core.verifying import Verifying
    from minedraft.types import Mode, RequestId


class Facts:
    """The part of the core that is only looked at; the core makes what it is about."""

    shaper: Shaper
    _table: RequestTable
    _counters: Counters
    _verifying: Verifying
    _planner: Planner

    @property
    def mode(self) -> Mode:
        """The mode that was set."""
        return self.shaper.mode

    @property
    def requests(self) -> dict[RequestId, Request]:
        """Live requests. Read only."""
        return self._table.live

    @property
    def blocks(self) -> PrefixCache:
        """KV blocks of the verifier's pool. Read only."""
        return self._table.blocks

    @property
    def batches(self) -> BatchManager:
        """Who is in which batch. Read only."""
        return self._table.batches

    @property
    def counters(self) -> Counters:
        """Totals. Read only."""
        counters, batches, prefixes = self._counters, self._table.batches, self._table.prefixes
        counters.num_preemptions = self._table.num_preemptions
        counters.num_prefix_hits = prefixes.num_hits
        counters.num_prefix_hit_tokens = prefixes.num_hit_tokens
        counters.num_evicted_blocks = prefixes.num_evicted_blocks
        counters.num_peak_blocks = self._planner.reserved.peak
        counters.num_peak_blocks_for_all = self._planner.reserved.peak_for_all
        counters.num_moves = batches.num_moves
        counters.num_rotating_steps = batches.num_rotating_steps
        counters.num_fallback_steps = batches.num_fallback_steps
        counters.num_shape_switches = self.shaper.num_switches
        return self._counters

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._table.waiting)

    @property
    def num_running(self) -> int:
        """Live requests that are in a batch."""
        return self._table.num_running

    @property
    def is_idle(self) -> bool:
        """Whether nothing is live and nothing in flight."""
        return not self._table.live and not self._table.in_flight

    @property
    def owed_by_verifier(self) -> int:
        """The step that the verifier is at, even if all its requests have ended; 0: none is."""
        step = self._verifying.step
        return step.step_id if step is not None else 0

    @property
    def oldest_step(self) -> int:
        """The oldest step in flight, which others may overtake only for a while; 0: none is."""
        return min((step.step_id for step in self._table.in_flight.values()), default=0)

    @property
    def batch_numbers(self) -> tuple[int, ...]:
        """Batches that exist: those of the mode, and closing ones that are not over yet."""
        return tuple(sorted({*self.batches.numbers, *self._table.in_flight}))

    def in_flight_step(self, batch: int) -> int:
        """Step id in flight for a batch; 0: none."""
        step = self._table.in_flight.get(batch)
        return step.step_id if step is not None else 0

    def phases(self, batch: int) -> dict[str, int]:
        """Live requests of a batch per phase."""
        counts: dict[str, int] = {}
        for request in self._table.members(batch):
            counts[request.phase.value] = counts.get(request.phase.value, 0) + 1
        return counts
