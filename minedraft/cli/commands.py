"""The group of all commands. It reports expected errors in one line on stderr, without traceback.

A bug keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from minedraft.cli.console import PlainConsole
from minedraft.cli.panels import arranged
from minedraft.errors import ConfigError, MineDraftError
from minedraft.plain_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORKER_PACKAGES = frozenset(
    {"filelock", "gguf", "huggingface_hub", "safetensors", "torch", "tqdm", "transformers"}
)
_GATEWAY_PACKAGES = frozenset({"fastapi", "httptools", "starlette", "uvicorn", "uvloop"})


_OURS = (MineDraftError, ConfigError, OSError, MemoryError)
"""Errors that are no bug: those raised on purpose, and those of the machine."""


class CommandGroup(TyperGroup):
    """Runs a command; turns expected errors into `error: ...` and exit code 1."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # click's signature
        """Write the help; a group may be a command as well, with options in panels."""
        TyperGroup.format_help(arranged(self, ctx), ctx, formatter)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # click's own signature
        """Run the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except _OURS as err:
            fail(in_words(err))
        except ExceptionGroup as group:
            ours = [err for err in _leaves(group) if isinstance(err, _OURS)]
            if not ours:
                raise
            fail(in_words(ours[0]))
        except ModuleNotFoundError as err:
            extra = _extra_of((err.name or "").partition(".")[0])
            if not extra:
                raise
            fail(f"{err.name} is not installed: pip install 'minedraft[{extra}]'")
        except KeyboardInterrupt:
            raise typer.Exit(130) from None  # as a shell reports SIGINT


def fail(message: str) -> None:
    """Report an error and end the command.

    Raises:
        typer.Exit: always, with code 1.
    """
    PlainConsole(stderr=True).print(f"error: {message}", style="red", soft_wrap=True)
    raise typer.Exit(1)


def in_words(err: BaseException) -> str:
    """Describe an error in one line; a `ConfigError` may have several.

    Args:
        err: One of the expected errors; the machine's are about a file, a descriptor or memory.
    """
    if isinstance(err, ConfigError):
        return str(err)
    if isinstance(err, OSError) and err.strerror:
        return plain(f"{err.filename}: {err.strerror}" if err.filename else err.strerror)
    return plain(str(err) or type(err).__name__)


def _extra_of(package: str) -> str:
    """Return the extra that brings a package; "": none does."""
    if package in _GATEWAY_PACKAGES:
        return "gateway"
    return "worker" if package in _WORKER_PACKAGES else ""


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for err in group.exceptions:
        if isinstance(err, BaseExceptionGroup):
            yield from _leaves(err)
        else:
            yield err
