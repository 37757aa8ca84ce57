from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer import rich_utils
from typer.main import get_command
from typer.testing import CliRunner

from minedraft.cli.commands import CommandGroup
from minedraft.cli.main import app
from minedraft.cli.panels import _COMMON, _METAVAR_OF, _PANEL_OF, Command, panel_of


def commands():
    """Every command with its name, subcommands too."""
    waiting = list(get_command(app).commands.items())
    while waiting:
        name, command = waiting.pop()
        yield name, command
        waiting.extend(getattr(command, "commands", {}).items())


def names_of_options():
    return {
        name: {each.name for each in command.params if not getattr(each, "hidden", False)}
        for name, command in commands()
    }


@pytest.mark.parametrize("command", [name for name in names_of_options() if name in _COMMON])
def test_every_option_of_a_long_command_is_common_or_has_a_panel(command):
    options = names_of_options()[command] - {"prompt"}
    lost = {each for each in options - _COMMON[command] if panel_of(command, each) is None}
    assert lost == set(), "name it in minedraft/cli/panels.py"


def test_the_tables_name_only_options_that_exist():
    found = names_of_options()
    every = set().union(*found.values())
    assert set(_PANEL_OF) - every == set()
    assert set(_METAVAR_OF) - every == set()
    assert {name: common - found[name] for name, common in _COMMON.items()} == {
        name: set() for name in _COMMON
    }


@pytest.fixture
def shown(monkeypatch):
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 100)
    monkeypatch.setattr(rich_utils, "COLOR_SYSTEM", None)
    monkeypatch.setattr(rich_utils, "FORCE_TERMINAL", False)
    probe = typer.Typer(cls=CommandGroup, context_settings={"auto_envvar_prefix": "MINEDRAFT"})

    @probe.callback()
    def root() -> None: ...

    @probe.command("serve", cls=Command)
    def serve(
        token_file: Annotated[str, typer.Option(envvar="MINEDRAFT_TOKEN_FILE", help="t")] = "",
        batch: Annotated[int, typer.Option(help="b [all]")] = 8,
        num_blocks: Annotated[int, typer.Option(help="n", min=0)] = 0,
        as_json: Annotated[bool, typer.Option("--json", help="j")] = False,
        parent_fd: Annotated[int, typer.Option(hidden=True)] = -1,
    ) -> None: ...

    return CliRunner().invoke(probe, ["serve", "--help"]).output


def test_common_options_come_first_and_panels_in_their_order(shown):
    places = [shown.index(text) for text in
              (" Options ", "--batch", "--help", " Device and memory ", "--num-blocks",
               " Security ", "--token-file")]  # fmt: skip
    assert places == sorted(places)
    assert "parent-fd" not in shown


def test_a_default_ends_the_text_of_its_option_and_text_is_no_markup(shown):
    assert "b [all] [default: 8]" in shown
    assert "n [default: 0]" in shown


def test_variables_are_explained_once(shown):
    body, _, epilog = shown.rpartition("╯")
    assert "MINEDRAFT" not in body
    assert " ".join(epilog.split()) == (
        "A variable can set an option too: MINEDRAFT_SERVE_BATCH sets --batch, and so on. "
        "By other names: MINEDRAFT_SERVE_AS_JSON (--json), MINEDRAFT_TOKEN_FILE (--token-file)."
    )


def test_what_an_option_takes_is_named_by_its_unit(shown):
    for shape in ("--token-file FILE", "--batch N", "--num-blocks N [x>=0]"):
        assert shape in " ".join(shown.split())


def test_a_variable_that_the_help_names_sets_its_option(monkeypatch):
    told = CliRunner().invoke(app, ["bench", "--help"]).output
    assert "MINEDRAFT_BENCH_JSON_FILE (--json)" in " ".join(told.split())
    monkeypatch.setenv("MINEDRAFT_BENCH_JSON_FILE", "figures.json")
    bench = get_command(app).commands["bench"]
    context = bench.make_context("bench", ["--prompts=p"], auto_envvar_prefix="MINEDRAFT_BENCH")
    assert str(context.params["json_file"]) == "figures.json"


_COMPLETING = "from minedraft.cli.main import app; app(prog_name='minedraft')"


def test_a_shell_completes_commands_and_options():
    def complete(line: str) -> list[str]:
        words = line.split(" ")
        ended = subprocess.run(
            [sys.executable, "-c", _COMPLETING],
            env={**os.environ, "_MINEDRAFT_COMPLETE": "complete_bash", "COMP_WORDS": line,
                 "COMP_CWORD": str(len(words) - 1)},
            capture_output=True, text=True, timeout=15, check=False,
        )  # fmt: skip
        return ended.stdout.split()

    assert complete("minedraft ser") == ["serve"]
    assert complete("minedraft serve --num-b") == ["--num-blocks"]
