"""`minedraft`: the command line. Importing it loads neither torch nor transformers.

Every option can be set by a variable too: MINEDRAFT_<COMMAND>_<OPTION>, as in
MINEDRAFT_VERIFIER_MODEL.
"""

from __future__ import annotations

from typing import Annotated

import typer

import minedraft
from minedraft.cli import bench, demo, generate, models, serve, status, timeline
from minedraft.cli.commands import CommandGroup
from minedraft.cli.options import out, secured
from minedraft.cli.roles import add_roles

app = typer.Typer(
    name="minedraft",
    cls=CommandGroup,
    help="Batch parallel speculative decoding as three services.",
    no_args_is_help=True,
    add_completion=False,
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
            help="Print it.",
            allow_from_autoenv=False,  # MINEDRAFT_VERSION may be anything to others
        ),
    ] = False,
) -> None:
    """Options before the command."""


_USE = "Use"
_LOOK = "Look and measure"
_MODELS = "Models"
app.command(rich_help_panel=_USE)(secured(serve.serve, is_server=True))
app.command(rich_help_panel=_USE)(secured(generate.generate))
app.command(rich_help_panel=_USE)(secured(generate.chat))
app.command(rich_help_panel=_USE)(demo.demo)
app.command(rich_help_panel=_LOOK)(secured(status.status))
app.command(rich_help_panel=_LOOK)(secured(bench.bench))
app.command(rich_help_panel=_LOOK)(secured(timeline.timeline))
app.command(rich_help_panel=_MODELS)(models.fetch)
app.command(rich_help_panel=_MODELS)(models.distill)
add_roles(app)

if __name__ == "__main__":
    app()
