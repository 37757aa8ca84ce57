"""Shows the progress of long jobs. Decides nothing: callers may drop it.

`Progress` is the callback every job of the hub and of `distill` takes; `RichProgress` is the one
that draws bars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichBars

if TYPE_CHECKING:
    from rich.text import Text

Unit = Literal["bytes", "items"]


class Progress(Protocol):
    """Receives the progress of a stage, from one thread; ``done`` never falls within a stage."""

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None:
        """Report.

        Args:
            stage: Says what is going on, e.g. ``download model.gguf``; the key of the bar.
            done: 0..total, in ``unit``.
            total: > 0, in ``unit``.
            unit: ``bytes``, or ``items`` for anything counted.
        """


def no_progress(stage: str, done: int, total: int, unit: Unit) -> None:
    """Drop the report."""


class RichProgress:
    """Draws one bar per stage on the console (None: stderr) while the context is open."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = RichBars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            _CountColumn(),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int, unit: Unit) -> None:
        """Draw the report; see `Progress`."""
        task = self._tasks.get(stage)
        if task is None:
            task = self._tasks[stage] = self._bars.add_task(stage, total=total, unit=unit)
        self._bars.update(task, completed=done, total=total)


class _CountColumn(ProgressColumn):
    """Bytes as ``12.1/98.4 MB``, items as ``3/30``."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = DownloadColumn()
        self._items = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        """Render by the unit of the task."""
        column = self._bytes if task.fields["unit"] == "bytes" else self._items
        return column.render(task)
