"""The verifier's KV blocks, as the coordinator sees them."""

from minedraft.blocks import BlockAllocator

__all__ = ["BlockAllocator"]
