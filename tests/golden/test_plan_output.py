"""Compares what `minedraft plan` prints with a file. `make golden` rewrites it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from minedraft.cli.main import app

FILE = Path(__file__).parent / "plan.txt"
QUESTION = (
    "plan", "--target", "Qwen3-32B", "--drafters", "0.6B,1.7B", "--gpus", "3xH100",
    "--rate", "4..16", "--slo", "tpot=60", "--acceptance", "0.6B=0.62",
    "--prompt-tokens", "128", "--output-tokens", "64",
)  # fmt: skip


def test_the_answer_is_as_in_its_file(update_golden):
    result = CliRunner().invoke(app, QUESTION, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    text = "\n".join(line.rstrip() for line in result.stdout.splitlines()) + "\n"
    if update_golden:
        FILE.write_text(text)
    assert text == FILE.read_text(), "make golden rewrites it; read the diff"
