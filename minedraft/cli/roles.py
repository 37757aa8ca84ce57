"""`minedraft coordinator|drafter|verifier|gateway`: one role; its config class has the options.

The role's code (and torch) is imported when the command runs, not before.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Annotated, Any, NoReturn, Protocol, cast, get_args

import structlog
import typer

from minedraft import log
from minedraft.cli import config_options, heap, kernel_caches
from minedraft.cli.commands import CommandGroup
from minedraft.cli.options import secured
from minedraft.cli.panels import Command
from minedraft.cli.swap import swap
from minedraft.errors import ConfigError
from minedraft.security.address import check_ports
from minedraft.security.exposure import exposed

_HELP = {
    "coordinator": "Run a coordinator, the service that clients call.",
    "drafter": "Run a drafter, the service with the draft model.",
    "verifier": "Run a verifier, the service with the target model.",
    "gateway": "Run a gateway, the HTTP server in front of a coordinator.",
}


_PANEL = "One service each"
_MAX_SETTINGS_BYTES = 2**20


class Run(Protocol):
    """`run` of a role's app.py."""

    def __call__(
        self, config: object, *, ready: Callable[[str], None], stop: asyncio.Event | None
    ) -> Awaitable[None]:
        """Serve until `stop` is set; `ready` gets the address once."""


def add_roles(app: typer.Typer) -> None:
    """Add one command per role."""
    for role, text in _HELP.items():
        if role != "drafter":
            app.command(role, cls=Command, help=text, rich_help_panel=_PANEL)(command(role))
    # `minedraft drafter` runs one; `minedraft drafter swap` changes the one that is running.
    drafter = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
    drafter.callback(invoke_without_command=True)(_unless_subcommand(command("drafter")))
    drafter.command("swap", cls=Command)(secured(swap))
    app.add_typer(drafter, name="drafter", help=_HELP["drafter"], rich_help_panel=_PANEL)


def _unless_subcommand(run: Callable[..., None]) -> Callable[..., None]:
    """Turn a role's command into the callback of a group, where no option can be required."""

    def callback(ctx: typer.Context, **values: object) -> None:
        if ctx.invoked_subcommand is None:
            run(**values)

    context = inspect.Parameter(
        "ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    optional = [
        _optional(parameter) if parameter.default is inspect.Parameter.empty else parameter
        for parameter in inspect.signature(run).parameters.values()
    ]
    callback.__signature__ = inspect.Signature([context, *optional])  # type: ignore[attr-defined]
    callback.__annotations__ = {p.name: p.annotation for p in (context, *optional)}
    return callback


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """Make a required option optional for typer; the config demands it, and the help says so."""
    of_type, option = get_args(parameter.annotation)
    told = copy(option)
    told.help = f"{option.help} Required."
    return parameter.replace(default="", annotation=Annotated[of_type, told])


def command(role: str) -> Callable[..., None]:
    """Build the command of a role. typer reads its signature."""
    settings_class = config_class(role)

    def run(
        *, log_level: str, log_json: bool | None, parent_fd: int, settings: str, **values: object
    ) -> None:
        del settings  # `_take_settings` has read them
        json = not sys.stderr.isatty() if log_json is None else log_json
        log.configure(role, level=_level(log_level), json=json)
        config = config_options.build(settings_class, values)
        check_ports(config.listen, getattr(config, "health_listen", None))  # a gateway has HTTP
        for found in exposed(config.security):
            structlog.get_logger(__name__).warning(
                "credentials.exposed",
                setting=found.setting,
                path=found.path,
                mode=f"{found.mode:04o}",
                remedy=found.remedy,
            )
        kernel_caches.bound()
        signal.signal(signal.SIGTERM, _end)  # torch takes seconds; `serve` takes over
        if role == "coordinator":  # strangers' messages end here; a worker's memory is its model's
            heap.give_back()
        app = importlib.import_module(f"minedraft.services.{role}.app")
        with asyncio.Runner(loop_factory=getattr(app, "new_event_loop", None)) as runner:
            runner.run(serve(cast("Run", app.run), config, parent_fd))

    own = [
        _own("log_level", Annotated[str, typer.Option(help="debug, info, warning or error.")],
             "info"),
        _own("log_json", Annotated[bool | None, typer.Option("--log-json/--log-text",
             help="One JSON object per line; default: unless stderr is a terminal.")], None),
        _own("parent_fd", Annotated[int, typer.Option(hidden=True)], -1),
        _own("settings", Annotated[str, typer.Option(hidden=True, is_eager=True,
             callback=_take_settings)], ""),
    ]  # fmt: skip
    every = [*config_options.parameters(settings_class), *own]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return run


def config_class(role: str) -> type[Any]:
    """Find the settings of a role."""
    module = importlib.import_module(f"minedraft.services.{role}.config")
    return cast("type[Any]", getattr(module, f"{role.capitalize()}Config"))


def _take_settings(ctx: typer.Context, source: str) -> str:
    """Take what our parent says of our options from stdin: one JSON object.

    The command line comes before it, and so do variables: the parent empties those.
    """
    if source != "-":
        return source
    try:
        told = json.loads(sys.stdin.buffer.read(_MAX_SETTINGS_BYTES))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ConfigError(f"settings: want one JSON object of at most {_MAX_SETTINGS_BYTES} bytes")
    unknown = told.keys() - {parameter.name for parameter in ctx.command.params}
    if unknown:
        raise ConfigError(f"settings: {', '.join(sorted(unknown))}: no such option")
    ctx.default_map = told
    return source


def _end(_signum: int, _frame: object) -> NoReturn:
    """End at SIGTERM, while nothing is open. A container's first process has no such default."""
    raise SystemExit(0)


async def serve(run: Run, config: object, parent_fd: int = -1) -> None:
    """Serve until a signal, or until the parent is gone.

    Args:
        run: The role.
        config: Its config.
        parent_fd: This end of a socket pair, or -1. The parent reads the address of this process
            from its end. When the parent dies, this process reads the end of the stream and stops.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    if parent_fd < 0:
        await run(config, ready=lambda _address: None, stop=stop)
        return
    with socket.socket(fileno=parent_fd) as parent:
        parent.setblocking(False)

        def orphaned() -> None:  # the parent never writes: readable is its end
            loop.remove_reader(parent)
            stop.set()

        loop.add_reader(parent, orphaned)
        try:
            await run(config, ready=lambda address: _tell(parent, address), stop=stop)
        finally:
            loop.remove_reader(parent)


def _tell(parent: socket.socket, address: str) -> None:
    parent.send(f"{address}\n".encode())


def _level(name: str) -> int:
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        raise ConfigError(f"log_level={name!r}: want debug, info, warning or error")
    return level


def _own(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )
