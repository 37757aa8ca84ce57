from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from minedraft.cli.commands import CommandGroup
from minedraft.cli.main import app
from minedraft.cli.roles import command
from minedraft.errors import ConfigError, StateError


def test_the_command_line_starts_without_torch_and_transformers():
    code = "import sys, minedraft.cli.main as m; sys.exit('torch' in sys.modules or "
    code += "'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_command_has_a_line_of_help():
    result = CliRunner().invoke(app, ["--help"], terminal_width=200)
    for name in ("serve", "coordinator", "drafter", "verifier", "generate", "chat", "status",
                 "mode", "bench", "timeline", "fetch", "distill", "demo"):  # fmt: skip
        assert name in result.output
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_the_version_is_the_packages():
    import minedraft

    assert CliRunner().invoke(app, ["--version"]).output.strip() == minedraft.__version__


def test_a_version_in_the_environment_is_not_ours():
    result = CliRunner().invoke(app, ["fetch", "--help"], env={"MINEDRAFT_VERSION": "0.1.0"})
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("role", ["coordinator", "drafter", "verifier"])
def test_every_option_of_a_role_has_help(role):
    parameters = inspect.signature(command(role)).parameters.values()
    helps = {p.name: get_args(p.annotation)[1] for p in parameters}
    assert [name for name, option in helps.items() if not option.hidden and not option.help] == []


def test_what_a_drafter_must_have_is_said():
    shown = CliRunner().invoke(app, ["drafter", "--help"], terminal_width=200).output
    text = " ".join(shown.replace("│", " ").split())
    assert "safetensors and tokenizer. Required." in text


@pytest.fixture
def raising():
    error: list[BaseException] = []
    probe = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @probe.command()
    def go() -> None:
        raise error[0]

    @probe.command()
    def other() -> None: ...

    def run(err: BaseException):
        error[:] = [err]
        return CliRunner().invoke(probe, ["go"])

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("k=99: want 0..32"), "error: k=99: want 0..32\n"),
        (StateError("r7: not now"), "error: r7: not now\n"),
        (ExceptionGroup("g", [ExceptionGroup("h", [ConfigError("deep")])]), "error: deep\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            "error: torch is not installed: pip install 'minedraft[worker]'\n",
        ),
    ],
)
def test_known_errors_are_one_line(raising, error, line):
    result = raising(error)
    assert (result.exit_code, result.stderr) == (1, line)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        ExceptionGroup("g", [ValueError("a bug")]),
        ModuleNotFoundError("No module named 'minedraft.oops'", name="minedraft.oops"),
    ],
)
def test_bugs_keep_their_traceback(raising, error):
    assert raising(error).exception is error


def test_ctrl_c_is_exit_code_130(raising):
    assert raising(KeyboardInterrupt()).exit_code == 130
