"""Tracks every live request: its place in queue and batches, its KV blocks, its rows. Pure.

If blocks run out for committed tokens, a request without a step in flight is preempted, that of
the lowest priority, of these the newest: its tokens stay, its KV is computed again later. If the
one that needs blocks is itself that one, it is preempted, unless a step in flight may free blocks
when it ends; then it sits this step out.
Drafts preempt no request: they get free blocks, or k shrinks.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.assignment import RULES
from minedraft.services.coordinator.core.prefixes import Prefixes
from minedraft.services.coordinator.core.request import Event, Phase
from minedraft.services.coordinator.core.waiting import WaitingQueue
from minedraft.types import RowId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step
    from minedraft.types import RequestId


_by_rank = attrgetter("rank")


class RequestTable:
    """See the module docstring.

    Args:
        num_batches: Batches in rotation.
        max_batch_size: Most members of one.
        assignment: Which rules assign requests to batches.
    """

    def __init__(self, num_batches: int, max_batch_size: int, assignment: str = "balanced") -> None:
        self.waiting = WaitingQueue()
        self.live: dict[RequestId, Request] = {}
        self.batches = RULES[assignment](num_batches, max_batch_size)
        self.blocks = PrefixCache(0, 1)
        self.prefixes = Prefixes()
        self.in_flight: dict[int, Step] = {}
        """By batch: at most one."""
        self.num_preemptions = 0
        self._verifier_closes: list[RowId] = []
        self._drafter_closes: dict[int, list[RowId]] = {}
        """By draft source."""
        self._planned: set[RowId] = set()
        """Rows of the plan being made."""
        self._promised_bound: int | None = None
        self._num_promised: int | None = None
        """Free blocks that drafts of the plan being made leave alone; None: not counted yet."""
        self._prefilling: list[Request] = []
        """All that are in this phase, and some that were."""
        self._next_row = 1

    @property
    def num_running(self) -> int:
        """Live requests that are in a batch."""
        return len(self.live) - len(self.waiting)

    def members(self, batch: int) -> list[Request]:
        """Requests of a batch, lowest priority number first, of these the oldest."""
        found = [self.live[request_id] for request_id in self.batches.members(batch)]
        return sorted(found, key=_by_rank)

    def use(self, blocks: PrefixCache, fingerprint: str = "") -> None:
        """Give blocks of another pool from now on; no request has any.

        Args:
            blocks: Of the verifier.
            fingerprint: Of its weights.
        """
        self.blocks = blocks
        self.prefixes.use(blocks, fingerprint)

    def members_to_plan(self, batch: int) -> list[Request]:
        """Members of a batch, but for those that wait for what a step in flight computes.

        Those that prefill get the blocks that are there already.
        """
        look_up = self.prefixes.look_up
        return [
            request
            for request in self.members(batch)
            if request.phase is Phase.READY or look_up(request)
        ]

    def enqueue(self, request: Request) -> None:
        """A new request waits."""
        self.live[request.request_id] = request
        self.waiting.add(request)

    def admit(self, batch: int) -> None:
        """Move waiting requests, in their order, into batches while places and blocks last.

        An admission promises blocks for all committed tokens and the next one. They stay free
        until the request has them: it allocates them chunk by chunk, in steps to come. Those that
        the prefix cache has it gets at once.

        Args:
            batch: The batch whose next step is being planned.
        """
        num_owed: int | None = None
        while self.waiting:
            request = self.waiting.next
            target = self.batches.choose(batch)
            if target is None:
                return
            if num_owed is None:
                num_owed = self._count_owed()
            # One block of slack for each running request, so that admission does not cause the
            # preemption of those already running.
            found = self.prefixes.match(request)
            need = self._prompt_blocks(request) - len(found)
            num_taken = need + self.blocks.num_idle(found)
            if num_taken + num_owed + self.num_running > self.blocks.num_free and self.num_running:
                return
            num_owed += need
            self.prefixes.adopt(request, found)
            self.waiting.take()
            self.batches.add(request.request_id, target)
            request.advance(Event.ADMIT)
            self._prefilling.append(request)
            (request.row_id,) = self.number_rows(1)

    def number_rows(self, count: int) -> list[RowId]:
        """Number rows that no worker has seen."""
        first, self._next_row = self._next_row, self._next_row + count
        return [RowId(number) for number in range(first, first + count)]

    def rebalance(self, batch: int) -> None:
        """Move members of a batch at its sync point to their shares; the surplus waits again."""
        self.batches.rebalance(batch)
        for request_id in self.batches.surplus(batch):
            self._preempt(self.live[request_id])

    def begin_plan(self) -> None:
        """Begin a plan; no request is in it yet."""
        self._planned.clear()
        self._promised_bound = self._num_promised = None
        self.prefixes.begin_plan()

    def allocate(self, request: Request, num_positions: int) -> bool:
        """Give `request` blocks for committed tokens and a place in the plan being made.

        Returns:
            False: it must sit this step out, or was itself preempted. One that prefills also sits
            it out if another member feeds its next block.
        """
        blocks = self.blocks
        is_prefilling = request.phase is Phase.PREFILLING
        if is_prefilling and self.prefixes.is_planned(request):
            return False
        if num_positions <= len(request.block_ids) * blocks.block_size:
            self._planned.add(request.row_id)
            if is_prefilling:
                self.prefixes.plan(request, num_positions)
            return True
        need = blocks.blocks_for(num_positions) - len(request.block_ids)
        while need > blocks.num_free:
            victim = max(self._idle_requests(), key=_by_rank, default=request)
            if victim is request and self.in_flight:
                return False  # a step in flight may free blocks; nothing is lost by waiting
            self._preempt(victim)
            if victim is request:
                return False
        request.block_ids += blocks.allocate(need)
        self._planned.add(request.row_id)
        if is_prefilling:
            self.prefixes.plan(request, num_positions)
        return True

    def allocate_drafts(self, request: Request, num_draft_tokens: int) -> int:
        """Give `request`, which is in the plan, blocks for drafts after its committed tokens.

        They are free ones that no running request may need for its next token: a draft preempts
        no request, in this step or in the next one of another batch.

        Returns:
            How many of the drafts fit.
        """
        blocks, num_held, num_tokens = self.blocks, len(request.block_ids), request.num_tokens
        size, num_positions = blocks.block_size, num_tokens + num_draft_tokens
        if num_positions <= num_held * size:
            return num_draft_tokens
        need, num_free = -(-num_positions // size) - num_held, blocks.num_free
        own = 1 if num_tokens == num_held * size else 0  # for the next token
        if num_free - need < self._most_promised():
            if self._num_promised is None:
                self._num_promised = self._count_promised()
            need = min(need, max(num_free - self._num_promised + own, 0))
        if need:
            if self._num_promised is not None:
                self._num_promised -= own
            request.block_ids += blocks.allocate(need)
        return min(num_draft_tokens, len(request.block_ids) * size - num_tokens)

    def end(self, request: Request) -> None:
        """A request is over, in whatever phase."""
        del self.live[request.request_id]
        if request.phase is Phase.WAITING:
            self.waiting.remove(request)
        else:
            self._release(request)
        request.advance(Event.FINISH)

    def end_step(self, batch: int, step_id: int) -> Step | None:
        """Remove a step that is in flight; None if it is not (any more)."""
        step = self.in_flight.get(batch)
        if step is None or step.step_id != step_id:
            return None
        del self.in_flight[batch]
        self.prefixes.end_step(step)
        self.blocks.free(step.orphans)
        self._verifier_closes += step.orphan_rows
        return step

    def start_over(self) -> None:
        """The verifier lost everything: whoever was running waits again, in the old order."""
        self.in_flight.clear()
        self._verifier_closes.clear()
        self.use(PrefixCache(0, 1))
        running = [r for r in self.live.values() if r.phase is not Phase.WAITING]
        for request in running:
            self.batches.remove(request.request_id)
            self._requeue(request)
        for request in self.live.values():
            request.block_keys.clear()  # the next verifier may have another block size

    def forget_source(self, source: int) -> None:
        """A draft source knows no row (any more)."""
        self._drafter_closes.pop(source, None)
        for request in self.live.values():
            request.drafter_lens.pop(source, None)
            request.behind.pop(source, None)

    def take_verifier_closes(self) -> tuple[RowId, ...]:
        """Rows that ended and that the verifier has not been told of yet."""
        taken = tuple(self._verifier_closes)
        self._verifier_closes.clear()
        return taken

    def take_drafter_closes(self, source: int) -> tuple[RowId, ...]:
        """Rows that ended and that a draft source has not been told of yet."""
        return tuple(self._drafter_closes.pop(source, ()))

    def close_at_drafter(self, source: int, row_ids: Iterable[RowId]) -> None:
        """A draft source has to be told that rows ended."""
        self._drafter_closes.setdefault(source, []).extend(row_ids)

    def sources_with_closes(self) -> tuple[int, ...]:
        """Draft sources that have to be told of rows that ended."""
        return tuple(self._drafter_closes)

    def check(self) -> None:
        """Raise if an invariant is broken: blocks are referenced by who lists them, batches hold.

        Raises:
            StateError: says which.
        """
        self.batches.check()
        size, requests, steps = self.blocks.block_size, self.live.values(), self.in_flight.values()
        self.blocks.check(
            [*(request.block_ids for request in requests), *(step.orphans for step in steps)],
            [
                *(request.num_computed // size for request in requests),
                *(len(step.orphans) for step in steps),
            ],
        )

    def _prompt_blocks(self, request: Request) -> int:
        """Blocks that a request lacks for its committed tokens and the next one."""
        return max(self.blocks.blocks_for(request.num_tokens + 1) - len(request.block_ids), 0)

    def _count_owed(self) -> int:
        """Free blocks that admitted requests were promised and have not allocated yet."""
        self._prefilling = [r for r in self._prefilling if r.phase is Phase.PREFILLING]
        return sum(self._prompt_blocks(request) for request in self._prefilling)

    def _most_promised(self) -> int:
        """A bound of `_count_promised` that is cheap: most plans never come near it.

        One that decodes has blocks for all tokens that its step drafts: it needs one more at most.
        """
        if self._promised_bound is None:
            self._promised_bound = self.num_running + sum(
                self.blocks.blocks_for(request.num_tokens)
                for request in self._prefilling
                if request.phase is Phase.PREFILLING
            )
        return self._promised_bound

    def _count_promised(self) -> int:
        """Free blocks that running requests may need before their next token is committed."""
        size, count = self.blocks.block_size, 0
        drafts: dict[RowId, int] = {}
        for step in self.in_flight.values():
            drafts |= step.num_draft_tokens
            drafts |= step.num_ngram_tokens
        for request in self.live.values():
            row_id = request.row_id
            if not row_id:
                continue
            num_positions = request.num_tokens
            if row_id in drafts:
                num_positions += drafts[row_id] + 1
            elif row_id in self._planned:
                num_positions += 1
            missing = -(-num_positions // size) - len(request.block_ids)
            if missing > 0:
                count += missing
        return count

    def _idle_requests(self) -> Iterator[Request]:
        """Admitted requests that are neither in flight nor in the plan being made."""
        busy = {row_id for step in self.in_flight.values() for row_id in step.requests}
        for request in self.live.values():
            if (
                request.phase in {Phase.READY, Phase.PREFILLING}
                and request.row_id not in busy
                and request.row_id not in self._planned
            ):
                yield request

    def _release(self, request: Request) -> None:
        """Take an admitted request off its batch, its blocks and the workers."""
        self.batches.remove(request.request_id)
        step = next((s for s in self.in_flight.values() if request.row_id in s.requests), None)
        if step is not None:
            del step.requests[request.row_id]
            step.orphans += request.block_ids
            step.orphan_rows.append(request.row_id)
        else:
            self.prefixes.publish(request)
            self.blocks.free(request.block_ids)
            if request.verifier_len:
                self._verifier_closes.append(request.row_id)
        for source in request.drafter_lens:
            self._drafter_closes.setdefault(source, []).append(request.row_id)
        request.reset_worker_state()

    def _preempt(self, request: Request) -> None:
        """Give up the KV of an admitted request without a step in flight; it waits again."""
        self.num_preemptions += 1
        self._release(request)
        self._requeue(request)

    def _requeue(self, request: Request) -> None:
        """Back into the queue, at its place by rank and arrival, not at the end."""
        request.reset_worker_state()
        request.advance(Event.PREEMPT)
        self.waiting.add(request)
