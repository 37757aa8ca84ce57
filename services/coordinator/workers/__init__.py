"""Which workers are there, and how they are kept: sessions, links, swaps."""
