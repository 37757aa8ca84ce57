"""The kinds of drafters: one file each, listed in `kinds.KINDS`."""
