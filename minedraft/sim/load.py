"""The requests of a simulation, and when they come. Seeded. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from minedraft.errors import ConfigError

MAX_REQUESTS: Final = 100_000
MAX_RATE: Final = 1e6


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request."""

    num_prompt_tokens: int
    max_tokens: int
    """Output tokens; it ends with the last one."""
    arrival_ns: int = 0
    """Since the begin. In a closed loop it waits for a free place too."""
    num_samples: int = 1
    prefix: int = 0
    """Number of the beginning that its prompt shares with others."""
    num_prefix_tokens: int = 0
    """Length of that beginning; 0: it shares none."""
    abort_after: int | None = None
    """Its caller leaves after so many output tokens; None: never."""
    num_draft_tokens: int | None = None
    """Most drafts per step that it asks for; None: the service's."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests by arrival."""

    arrivals: tuple[Arrival, ...]
    concurrency: int | None = None
    """Closed loop: most requests that are under way at any time; None: each comes at its time."""


def steady(
    num_requests: int,
    num_prompt_tokens: int,
    max_tokens: int,
    *,
    rate: float | None = None,
    concurrency: int | None = None,
    abort_share: float = 0.0,
    seed: int = 0,
) -> Load:
    """Make requests of one size.

    Args:
        num_requests: How many.
        num_prompt_tokens: Of each.
        max_tokens: Output tokens of each.
        rate: Requests per second, at exponential distances (Poisson); None: all come at once.
        concurrency: As in `Load`.
        abort_share: Share of requests whose caller leaves at some time.
        seed: Of arrivals and aborts.

    Raises:
        ConfigError: a number is out of its range.
    """
    if not 1 <= num_requests <= MAX_REQUESTS:
        raise ConfigError(f"requests={num_requests}: want 1..{MAX_REQUESTS}")
    if rate is not None and not 0 < rate <= MAX_RATE:
        raise ConfigError(f"rate={rate}: want more than 0, at most {MAX_RATE:g}")
    if not 0 <= abort_share <= 1:
        raise ConfigError(f"aborts={abort_share}: want 0..1")
    chance = random.Random(seed)
    time_s, arrivals = 0.0, []
    for _ in range(num_requests):
        if rate is not None:
            time_s += chance.expovariate(rate)
        leaves = abort_share > 0 and chance.random() < abort_share
        arrivals.append(
            Arrival(
                num_prompt_tokens,
                max_tokens,
                arrival_ns=round(time_s * 1e9),
                abort_after=chance.randint(1, max_tokens) if leaves else None,
            )
        )
    return Load(tuple(arrivals), concurrency)
