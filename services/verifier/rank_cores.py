"""Assigns cores to the ranks of a tensor parallel verifier. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.worker.cores import parse_cores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet


def rank_cores(cpus: str, tp_size: int) -> list[frozenset[int] | None]:
    """Split a core list over ranks.

    Args:
        cpus: "0-3;4-7" names each rank's cores, rank 0 first; without a semicolon the cores are
            split evenly in rising order; "" lets every rank run anywhere.
        tp_size: Ranks.

    Returns:
        One set a rank; None: any core.

    Raises:
        ConfigError: not a core list, or not for that many ranks.
    """
    parts = cpus.split(";")
    if len(parts) > 1:
        if len(parts) != tp_size or not all(part.strip() for part in parts):
            raise ConfigError(f"cpus={cpus!r}: want one core list for each of tp_size={tp_size}")
        return [parse_cores(part.strip()) for part in parts]
    cores = parse_cores(cpus)
    if cores is None:
        return [None] * tp_size
    if len(cores) % tp_size:
        raise ConfigError(
            f"cpus={cpus!r}: {len(cores)} cores cannot be split over tp_size={tp_size} ranks; "
            "name each rank's own as '0;1'"
        )
    ordered, each = sorted(cores), len(cores) // tp_size
    return [frozenset(ordered[at * each : (at + 1) * each]) for at in range(tp_size)]


def refuse_unusable(
    cpus: str, cores: Sequence[frozenset[int] | None], usable: AbstractSet[int]
) -> None:
    """Check that every rank can use its cores, before any rank starts.

    Args:
        cpus: The setting, for messages.
        cores: From `rank_cores`.
        usable: Cores that this process may use.

    Raises:
        ConfigError: a core does not exist or may not be used; names it and its rank.
    """
    for rank, wanted in enumerate(cores):
        missing = sorted((wanted or frozenset()) - usable)
        if missing:
            raise ConfigError(
                f"cpus={cpus!r}: rank {rank} of {len(cores)} cannot use cores {missing}; "
                f"usable are {sorted(usable)}"
            )
