"""Keeps JSON objects in a directory, from one run to the next. A thread reads and writes files.

A file is a cache: one that is broken, cut short or of something else is ignored with a line in the
log. What an object means is its owner's business.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

log = structlog.get_logger(__name__)

MAX_FILES: Final = 64
"""Files that are read or kept, newest first."""
MAX_FILE_BYTES: Final = 2**18
_PERIOD_S = 60.0
_NAME = re.compile(r"[a-z]{1,32}-[0-9a-f]{32}")


class KeptForms:
    """Reads when it is entered, writes when it is left, and meanwhile once a minute.

    Args:
        directory: Of the files; empty: nothing is kept.
        take: Gets all objects by name, newest first, and says of which of them it can make nothing,
            and why.
        give: Returns the objects to keep, by name: letters, a dash, 32 hexadecimal digits. Both are
            called on the event loop.
    """

    def __init__(
        self,
        directory: str,
        take: Callable[[Mapping[str, object]], Mapping[str, str]],
        give: Callable[[], Mapping[str, object]],
    ) -> None:
        self._directory = Path(directory) if directory else None
        self._take = take
        self._give = give

    async def __aenter__(self) -> Self:
        if self._directory is not None:
            forms = await asyncio.to_thread(read, self._directory)
            for name, why in self._take(forms).items():
                _ignore(self._directory / f"{name}.json", why)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.write()

    async def run(self) -> None:
        """Write now and then, until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.write()

    async def write(self) -> None:
        """Write what there is to keep, if there is anything."""
        if self._directory is not None and (forms := self._give()):
            await asyncio.to_thread(write, self._directory, forms)


def read(directory: Path) -> dict[str, Any]:
    """Read the files of a directory, newest first. What cannot be read is said, and left out."""
    found: dict[str, Any] = {}
    for path in _files(directory)[:MAX_FILES]:
        try:
            if not path.is_file():  # a pipe would wait for ever
                raise ConfigError("it is no file")
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise ConfigError(f"it has more than {MAX_FILE_BYTES} bytes")
            found[path.stem] = json.loads(data)
        except (OSError, ValueError, RecursionError, ConfigError) as err:
            _ignore(path, f"{type(err).__name__}: {err}")
    return found


def write(directory: Path, forms: Mapping[str, object]) -> None:
    """Write one file per object, each of them whole or not at all; drop the oldest beyond 64."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, form in forms.items():
            _replace(directory / f"{name}.json", json.dumps(form, allow_nan=False))
        for path in _files(directory)[MAX_FILES:]:
            path.unlink(missing_ok=True)
    except OSError as err:
        log.warning("cache.not_written", directory=str(directory), why=str(err)[:300])


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _files(directory: Path) -> list[Path]:
    """Files with names of ours, newest first; nothing if there is no such directory."""
    dated: list[tuple[float, Path]] = []
    try:
        for path in directory.iterdir():
            if path.suffix == ".json" and _NAME.fullmatch(path.stem):
                with suppress(FileNotFoundError):
                    dated.append((path.stat().st_mtime, path))
    except FileNotFoundError:
        return []
    except OSError as err:
        _ignore(directory, str(err))
        return []
    return [path for _, path in sorted(dated, reverse=True)]


def _ignore(path: Path, why: str) -> None:
    log.warning("cache.ignored", file=str(path), why=why[:300])
