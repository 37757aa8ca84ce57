"""`minedraft`: the command line. Importing it loads neither torch nor transformers.

Every option can be set by a variable too: MINEDRAFT_<COMMAND>_<OPTION>, as in
MINEDRAFT_VERIFIER_MODEL.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Annotated

import typer

import minedraft
from minedraft import log
from minedraft.cli import (
    bench,
    demo,
    generate,
    mode,
    models,
    plan,
    serve,
    simulate,
    status,
    timeline,
)
from minedraft.cli.commands import CommandGroup, fail, in_words
from minedraft.cli.options import out, secured
from minedraft.cli.panels import Command
from minedraft.cli.roles import add_roles
from minedraft.cli.streams import OutputError, guard

app = typer.Typer(
    name="minedraft",
    cls=CommandGroup,
    help="Batch-parallel speculative decoding as three services.",
    epilog="Variables can set options too: a command's --help ends with their names.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,  # its tracebacks show local variables: prompts
    context_settings={
        "auto_envvar_prefix": "MINEDRAFT",
        "help_option_names": ["-h", "--help"],
    },
)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(minedraft.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version.",
            allow_from_autoenv=False,  # MINEDRAFT_VERSION may be anything to others
        ),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


_USE = "Use"
_LOOK = "Look and measure"
_MODELS = "Models"
app.command(cls=Command, rich_help_panel=_USE)(secured(serve.serve, is_server=True))
app.command(cls=Command, rich_help_panel=_USE)(secured(generate.generate))
app.command(cls=Command, rich_help_panel=_USE)(secured(generate.chat))
app.command(cls=Command, rich_help_panel=_USE)(secured(mode.mode))
app.command(cls=Command, rich_help_panel=_USE)(demo.demo)
app.command(cls=Command, rich_help_panel=_LOOK)(secured(status.status))
app.command(cls=Command, rich_help_panel=_LOOK)(secured(bench.bench))
app.command(cls=Command, rich_help_panel=_LOOK)(secured(timeline.timeline))
app.command(cls=Command, rich_help_panel=_LOOK)(simulate.simulate)
app.command(cls=Command, rich_help_panel=_LOOK)(plan.plan)
app.command(cls=Command, rich_help_panel=_MODELS)(models.fetch)
app.command(cls=Command, rich_help_panel=_MODELS)(models.distill)
add_roles(app)


def main() -> None:
    """Run the command line as this process's main program."""
    guard()
    log.configure("minedraft", level=logging.WARNING, json=False, stream=sys.stderr)
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except (OutputError, OSError) as err:  # of what is written beside the commands: help, say
        with suppress(typer.Exit):
            fail(in_words(err))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
