"""What a check of `sched.py` is: a measurement, and the lines that it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lines import Line

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One measurement; each runs in a process of its own."""

    measure: Callable[[], Report]
    lines: Callable[[Report], Iterator[Line]]
    rows: tuple[str, ...]
    """What it is to show, for a table without its figures."""
