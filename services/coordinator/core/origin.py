"""Where the costs of a leg come from. Pure values."""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """Where what is known of a leg was first learned; live steps correct all of it."""

    UNKNOWN = ""
    MEASURING = "measuring"  # trial steps are under way
    CACHE = "cache"  # the file of an earlier run
    TRIALS = "trials"  # trial steps of this run
    LIVE = "live"  # steps of requests
