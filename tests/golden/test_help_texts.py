"""Compares the help of the main commands with files. `pytest tests/golden --update-golden` rewrites
them; the diff is the review.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer import rich_utils
from typer.testing import CliRunner

from minedraft.cli.main import app

COMMANDS = ("serve", "coordinator", "drafter", "verifier", "gateway", "generate", "chat", "bench",
            "drafter swap", "mode", "status", "timeline", "simulate", "plan")  # fmt: skip
MOST_LINES = {"serve": 74, "coordinator": 106}
_FILES = Path(__file__).parent / "help"


@pytest.fixture
def shown(monkeypatch):
    """Render the help of a command, 100 columns wide, whatever the terminal."""
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 100)
    monkeypatch.setattr(rich_utils, "COLOR_SYSTEM", None)
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", False)

    def show(command: str) -> str:
        result = CliRunner().invoke(app, [*command.split(), "--help"])
        assert result.exit_code == 0, result.output
        return "\n".join(line.rstrip() for line in result.output.strip().splitlines()) + "\n"

    return show


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_is_as_in_its_file(shown, command, update_golden):
    path = _FILES / f"{command.replace(' ', '-') or 'minedraft'}.txt"
    text = shown(command)
    if update_golden:
        path.write_text(text)
    assert text == path.read_text(), "make golden rewrites it; read the diff"


def test_every_help_text_belongs_to_a_command():
    wanted = {"minedraft", *(command.replace(" ", "-") for command in COMMANDS)}
    assert {path.stem for path in _FILES.iterdir()} == wanted


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits(shown, command):
    most = MOST_LINES.get(command, 75)
    assert len(shown(command).splitlines()) <= most
