"""The group all commands hang on: whatever goes wrong ends as one line on stderr, no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from minedraft.errors import ConfigError, MineDraftError

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORKER_PACKAGES = frozenset(
    {"filelock", "gguf", "huggingface_hub", "safetensors", "torch", "tqdm", "transformers"}
)


class CommandGroup(TyperGroup):
    """Runs a command; turns our errors into `error: ...` and exit code 1."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  # click's own signature
        """Run the command that `ctx` names."""
        try:
            return super().invoke(ctx)
        except (MineDraftError, ConfigError) as err:
            fail(str(err))
        except ExceptionGroup as group:
            ours = [err for err in _leaves(group) if isinstance(err, MineDraftError | ConfigError)]
            if not ours:
                raise
            fail(str(ours[0]))
        except ModuleNotFoundError as err:
            if err.name is None or err.name.partition(".")[0] not in _WORKER_PACKAGES:
                raise
            fail(f"{err.name} is not installed: pip install 'minedraft[worker]'")
        except KeyboardInterrupt:
            raise typer.Exit(130) from None  # as a shell reports SIGINT


def fail(message: str) -> None:
    """End the command.

    Raises:
        typer.Exit: always, with code 1.
    """
    typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(1)


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for err in group.exceptions:
        if isinstance(err, BaseExceptionGroup):
            yield from _leaves(err)
        else:
            yield err
