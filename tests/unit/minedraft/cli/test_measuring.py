from __future__ import annotations

import io

from rich.console import Console

from minedraft.admin import CostStatus
from minedraft.cli.measuring import show_measuring
from minedraft.errors import WorkerUnavailableError


class Measured:
    """A cluster whose trials get on as told."""

    def __init__(self, *steps: CostStatus) -> None:
        self.steps = steps

    async def measured(self, on_progress):
        if not self.steps:
            raise WorkerUnavailableError("it ended")
        for step in self.steps:
            on_progress(step)
        return self.steps[-1]


async def shown(*steps: CostStatus, is_terminal: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=is_terminal, highlight=False)
    await show_measuring(Measured(*steps), console)
    return stream.getvalue()


UNDER_WAY = CostStatus("measuring", "", 46, 12, 5)
OVER = CostStatus("trials", "trials", 46, 46, 3_000_000_000)


async def test_a_terminal_shows_a_bar_and_then_what_is_known():
    text = await shown(UNDER_WAY, OVER, is_terminal=True)
    assert "measuring what steps cost" in text
    assert text.endswith("costs: target from trials, drafter from trials, 46 of 46 trials, 3.0 s\n")


async def test_without_a_terminal_there_is_one_line():
    assert (await shown(UNDER_WAY, OVER)).count("\n") == 1


async def test_nothing_is_said_while_nothing_is_known():
    assert await shown(CostStatus()) == ""


async def test_a_coordinator_that_ends_meanwhile_is_another_ones_to_tell():
    assert await shown() == ""
