"""Allocates the KV blocks of one pool. Pure."""

from __future__ import annotations

from minedraft.errors import StateError


class BlockAllocator:
    """A free list over blocks 0..num_blocks-1, most recently freed first (warm in cache).

    Takes memory for the blocks that were ever used: how many there are is what a worker says.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._freed: list[int] = []
        self._num_touched = 0
        """Blocks from this one on have never been used."""
        self._used: set[int] = set()

    @property
    def num_free(self) -> int:
        """Number of free blocks."""
        return self.num_blocks - len(self._used)

    @property
    def num_used(self) -> int:
        """Number of blocks in use."""
        return len(self._used)

    @property
    def used(self) -> frozenset[int]:
        """The blocks in use."""
        return frozenset(self._used)

    def blocks_for(self, num_tokens: int) -> int:
        """Return the number of blocks that `num_tokens` positions need."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` blocks.

        Raises:
            StateError: fewer are free; the caller asks `num_free` first.
        """
        if count > self.num_free:
            raise StateError(f"{count} blocks wanted, {self.num_free} free")
        if count == 1 and self._freed:  # what a sequence that decodes asks for
            block = self._freed.pop()
            self._used.add(block)
            return [block]
        taken = [self._freed.pop() for _ in range(min(count, len(self._freed)))]
        first, self._num_touched = self._num_touched, self._num_touched + count - len(taken)
        taken += range(first, self._num_touched)
        self._used.update(taken)
        return taken

    def free(self, block_ids: list[int]) -> None:
        """Free blocks.

        Raises:
            StateError: one of them is not in use (freed twice).
        """
        for block in block_ids:
            if block not in self._used:
                raise StateError(f"block {block} is not in use")
            self._used.discard(block)
            self._freed.append(block)
