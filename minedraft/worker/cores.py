"""CPU core lists as taskset writes them. Pure."""

from __future__ import annotations

from minedraft.errors import ConfigError


def parse_cores(text: str) -> frozenset[int] | None:
    """Parse "1" or "0-3,8".

    Returns:
        The cores; None for "": any core.

    Raises:
        ConfigError: not a core list.
    """
    if not text:
        return None
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            cores.update(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            raise ConfigError(f"cpus={text!r}: want a list like '1' or '0-3,8'") from None
    if not cores:
        raise ConfigError(f"cpus={text!r} names no core")
    return frozenset(cores)
