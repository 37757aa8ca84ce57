"""The KV blocks of one pool, shared between sequences that begin alike. Pure.

A full block has a key: a hash of everything that its keys and values depend on. Equal keys mean
equal content, so a sequence may list a block that another one filled. A block is free, referenced
by the sequences that list it, or cached: published, listed by none, and taken back when free ones
run out, least recently used first.

Refuses to know sequences: who lists which block is the caller's. A block may be published when its
positions are computed for good, and a sequence may write only to blocks that are not published.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING

from minedraft.blocks import BlockAllocator
from minedraft.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_KEY_BYTES = 16


def extend_keys(
    keys: list[bytes], token_ids: Sequence[int], block_size: int, *, salt: str, fingerprint: str
) -> None:
    """Append the keys of the blocks that follow those of `keys`.

    Args:
        keys: Of a sequence's first blocks; empty at first.
        token_ids: Tokens of the blocks that follow, whole blocks only.
        block_size: Tokens per block.
        salt: Sequences with another one share nothing with this one.
        fingerprint: Of the weights.
    """
    parent = keys[-1] if keys else _root(salt, fingerprint)
    data = array("I", token_ids)
    for start in range(0, len(data), block_size):
        block = data[start : start + block_size].tobytes()
        parent = blake2b(parent + block, digest_size=_KEY_BYTES).digest()
        keys.append(parent)


def _root(salt: str, fingerprint: str) -> bytes:
    """What comes before the first block; the length keeps the two strings apart."""
    data = f"{len(fingerprint)} {fingerprint}{salt}".encode()
    return blake2b(data, digest_size=_KEY_BYTES, person=b"root").digest()


class PrefixCache:
    """See the module docstring.

    Args:
        num_blocks: Blocks of the pool.
        block_size: Positions per block.
        is_on: Whether anything is published; if not, this is a plain allocator.
    """

    def __init__(self, num_blocks: int, block_size: int, *, is_on: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.is_on = is_on
        self.num_evictions = 0
        """Cached blocks that were taken for other content."""
        self._blocks = BlockAllocator(num_blocks, block_size)
        self._more: dict[int, int] = {}
        """References beyond the first, of blocks that have any."""
        self._by_key: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        """By published block."""
        self._cached: OrderedDict[int, None] = OrderedDict()
        """Least recently used first; a dict would look at all that left before its first."""

    @property
    def num_free(self) -> int:
        """Number of blocks that can be allocated: free or cached."""
        return self._blocks.num_free + len(self._cached)

    @property
    def num_empty(self) -> int:
        """Number of blocks that can be allocated without taking a cached one."""
        return self._blocks.num_free

    @property
    def num_used(self) -> int:
        """Number of blocks that are referenced."""
        return self._blocks.num_used - len(self._cached)

    @property
    def num_cached(self) -> int:
        """Number of cached blocks."""
        return len(self._cached)

    def blocks_for(self, num_tokens: int) -> int:
        """Return the number of blocks that `num_tokens` positions need."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` blocks of no content, with one reference each.

        Raises:
            StateError: fewer can be; the caller asks `num_free` first.
        """
        num_free = self._blocks.num_free
        if count <= num_free:
            return self._blocks.allocate(count)
        missing = count - num_free
        if missing > len(self._cached):
            raise StateError(f"{count} blocks wanted, {self.num_free} free")
        taken = self._blocks.allocate(num_free)
        for _ in range(missing):
            block, _ = self._cached.popitem(last=False)
            self._forget(block)
            taken.append(block)
        self.num_evictions += missing
        return taken

    def free(self, block_ids: Sequence[int]) -> None:
        """Drop one reference to each block, of one sequence in its order.

        A block that none is left of is cached, if it is published, the last one of the sequence as
        the least recently used: it is worth nothing without those before it.

        Raises:
            StateError: one of them is not referenced (freed twice).
        """
        for block in reversed(block_ids):
            if block in self._more:
                self._more[block] -= 1
                if not self._more[block]:
                    del self._more[block]
            elif block in self._cached:
                raise StateError(f"block {block} is not in use")
            elif block in self._keys:
                self._cached[block] = None
            else:
                self._blocks.free([block])

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """Return the blocks of the first keys, up to the first one that nothing is published of.

        They are not referenced yet: see `share`.
        """
        found = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def num_idle(self, block_ids: Iterable[int]) -> int:
        """Count those that are cached: to share them takes them from the free ones."""
        return sum(block in self._cached for block in block_ids)

    def share(self, block_ids: Iterable[int]) -> None:
        """Add a reference to each of some published blocks.

        Raises:
            StateError: one is not published.
        """
        for block in block_ids:
            if block not in self._keys:
                raise StateError(f"block {block} is not published")
            if block in self._cached:
                del self._cached[block]
            else:
                self._more[block] = self._more.get(block, 0) + 1

    def publish(self, block: int, key: bytes) -> None:
        """Let others share a referenced block. Nothing happens if its key is published already."""
        if self.is_on and block not in self._keys and key not in self._by_key:
            self._by_key[key], self._keys[block] = block, key

    def withdraw(self, block_ids: Iterable[int]) -> None:
        """Share blocks with no other sequence any more; those that list them keep them."""
        for block in block_ids:
            if block in self._cached:
                del self._cached[block]
                self._forget(block)
                self._blocks.free([block])
            elif block in self._keys:
                self._forget(block)

    def check(self, tables: Iterable[Sequence[int]], num_final: Iterable[int]) -> None:
        """Check that references are the sequences' and that none writes what others list.

        Args:
            tables: The blocks of each sequence.
            num_final: Of each, how many of its first blocks it will not write to any more.

        Raises:
            StateError: they are not, or one may.
        """
        counts: dict[int, int] = {}
        for table, final in zip(tables, num_final, strict=True):
            for index, block in enumerate(table):
                counts[block] = counts.get(block, 0) + 1
                if index >= final and (block in self._keys or block in self._more):
                    raise StateError(f"block {block} may be written, and is published")
        if counts != self._references():
            raise StateError(f"{counts} are listed, {self._references()} are counted")

    def _references(self) -> dict[int, int]:
        used = self._blocks.used - self._cached.keys()
        return {block: self._more.get(block, 0) + 1 for block in used}

    def _forget(self, block: int) -> None:
        """Nothing finds a block any more."""
        del self._by_key[self._keys.pop(block)]
