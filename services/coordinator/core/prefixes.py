"""Finds, in the target's pool, blocks that a request's tokens already have. Pure.

A prompt's blocks are published when the result of their step has come: the verifier may run a
younger plan of another batch first, so nothing that is in flight may be relied on. What was decoded
is published when its request ends or is preempted. Of several requests with the same next block one
feeds it; the others wait for the step that it is in, and find it then.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from minedraft.prefix import PrefixCache, extend_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step

_PATIENCE_STEPS: Final = 8
"""Steps that may be planned after the one that is waited for; then it is overtaken for too long."""


class Prefixes:
    """See the module docstring."""

    def __init__(self) -> None:
        self.num_hits = 0
        """Times that a request found blocks."""
        self.num_hit_tokens = 0
        """Committed tokens in them, which were not fed."""
        self._blocks = PrefixCache(0, 1)
        self._fingerprint = ""
        self._num_evicted = 0
        """Of pools before this one."""
        self._planned: dict[bytes, None] = {}
        """Keys of blocks that the plan being made fills."""
        self._in_flight: dict[bytes, int] = {}
        """Step ids by key of a block that the step fills."""
        self._last_step = 0

    @property
    def num_evicted_blocks(self) -> int:
        """Cached blocks that were taken for other content."""
        return self._num_evicted + self._blocks.num_evictions

    def use(self, blocks: PrefixCache, fingerprint: str) -> None:
        """Look into another pool; no step is in flight.

        Args:
            blocks: Of the verifier.
            fingerprint: Of its weights.
        """
        self._num_evicted += self._blocks.num_evictions
        self._blocks, self._fingerprint = blocks, fingerprint
        self._planned.clear()
        self._in_flight.clear()

    def match(self, request: Request) -> list[int]:
        """Published blocks that follow what a request has computed.

        They end below its last token: that is always fed, into a block of the request's own. So no
        request writes to a block of others.
        """
        if not self._blocks.is_on:
            return []
        return self._blocks.find(self._next_keys(request))

    def adopt(self, request: Request, found: list[int]) -> None:
        """Give a request, which is in no step, what `match` found."""
        if not found:
            return
        size, start = self._blocks.block_size, request.num_computed
        first = start // size
        self._blocks.share(found)
        self._blocks.free(request.block_ids[first:])
        request.block_ids[first:] = found
        request.num_blocks_sent = min(request.num_blocks_sent, first)
        end = request.num_computed = (first + len(found)) * size
        request.num_published = first + len(found)
        new = min(end, len(request.prompt_token_ids)) - max(start, request.num_reached)
        request.num_cached_tokens += max(new, 0)
        request.num_reached = max(request.num_reached, end)
        self.num_hits += 1
        self.num_hit_tokens += end - start

    def look_up(self, request: Request) -> bool:
        """Give a request that prefills what others have computed of it meanwhile.

        Returns:
            False: a step in flight computes its next block; it waits for that.
        """
        if not self._blocks.is_on:
            return True
        self.adopt(request, self.match(request))
        key = next(self._next_keys(request), None)
        step_id = None if key is None else self._in_flight.get(key)
        return step_id is None or self._last_step - step_id >= _PATIENCE_STEPS

    def is_planned(self, request: Request) -> bool:
        """Whether the plan being made feeds the next block of a request that prefills."""
        return bool(self._planned) and next(self._next_keys(request), None) in self._planned

    def begin_plan(self) -> None:
        """Begin a plan; it feeds nothing yet."""
        self._planned.clear()

    def plan(self, request: Request, end: int) -> None:
        """The plan being made feeds a request up to position `end`."""
        size = self._blocks.block_size
        first, last = request.num_computed // size, end // size
        if self._blocks.is_on and last > first:
            self._planned |= dict.fromkeys(self._keys(request, last)[first:last])

    def begin_step(self, step: Step) -> None:
        """The plan that was made is a step in flight."""
        self._last_step = step.step_id
        if self._planned:
            step.block_keys = tuple(self._planned)
            self._in_flight |= dict.fromkeys(step.block_keys, step.step_id)

    def end_step(self, step: Step) -> None:
        """It has ended, whatever became of it."""
        for key in step.block_keys:
            if self._in_flight.get(key) == step.step_id:
                del self._in_flight[key]

    def publish(self, request: Request) -> None:
        """Let others have the full blocks of what a request, which is in no step, has computed.

        What it decodes waits until it lets go of its blocks: who decodes looks for nothing.
        """
        num_full = request.num_computed // self._blocks.block_size
        if num_full <= request.num_published or not self._blocks.is_on:
            return
        keys = self._keys(request, num_full)
        for index in range(request.num_published, num_full):
            self._blocks.publish(request.block_ids[index], keys[index])
        request.num_published = num_full

    def distrust(self, request: Request) -> None:
        """A request ends in an error: no other may have what it computed, or computed with."""
        self.withdraw(request.block_ids)
        request.num_published = len(request.block_ids)

    def withdraw(self, block_ids: list[int]) -> None:
        """No other request may find these blocks."""
        self._blocks.withdraw(block_ids)

    def _next_keys(self, request: Request) -> Iterator[bytes]:
        """Keys of blocks after those that are computed, up to the last that may be adopted.

        Each is hashed when it is asked for, and never again.
        """
        size = self._blocks.block_size
        last = (request.num_tokens - 1) // size
        for index in count(request.num_computed // size):
            if index >= last:
                return
            yield self._keys(request, index + 1)[index]

    def _keys(self, request: Request, num_blocks: int) -> list[bytes]:
        """Keys of at least the first `num_blocks` blocks of committed tokens."""
        keys, size = request.block_keys, self._blocks.block_size
        if len(keys) < num_blocks:
            token_ids = request.tokens_between(len(keys) * size, num_blocks * size)
            extend_keys(
                keys, token_ids, size, salt=request.cache_salt, fingerprint=self._fingerprint
            )
        return keys
