"""One figure beside its target, and a table of them. What is measured is not its business."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from minedraft.bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Line:
    """One figure and its target."""

    text: str
    figure: float
    target: float
    at_most: bool = True
    detail: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the figure reaches its target."""
        return self.figure <= self.target if self.at_most else self.figure >= self.target


def show(lines: Sequence[Line], console: Console) -> None:
    """Print one row per line."""
    table = Table("what", "figure", "target", "", "more")
    for line in lines:
        sign = "<=" if line.at_most else ">="
        verdict = "[green]OK[/]" if line.is_met else "[red]MISS[/]"
        table.add_row(
            line.text, f"{line.figure:.3g}", f"{sign} {line.target:g}", verdict, line.detail
        )
    console.print(table)


def write(path: Path, lines: Sequence[Line], raw: dict[str, Any]) -> None:
    """Write the lines and the figures they rest on as JSON."""
    report = {
        "machine": describe(),
        "lines": [{**asdict(line), "ok": line.is_met} for line in lines],
        "raw": raw,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1), encoding="utf-8")
