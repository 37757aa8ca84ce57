"""The model cache of this machine. A directory appears there complete or not at all.

It refuses to know what is in a model. Layout: ``<cache>/models/<name>/`` are complete directories,
``<cache>/downloads/`` holds files on their way, ``<cache>/locks/`` one lock a name.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PROVENANCE_FILE: Final = "minedraft_source.json"
"""File that records what a directory was made from; after a change it is made again."""

_LOCK_TIMEOUT_S: Final = 3600.0


def cache_root(cache_dir: str | Path | None = None) -> Path:
    """The cache directory: the argument, else ``$MINEDRAFT_CACHE``, else ``~/.cache/minedraft``.

    Raises:
        ConfigError: it begins with ``~`` and there is no such home.
    """
    given = os.environ.get("MINEDRAFT_CACHE", "") if cache_dir is None else cache_dir
    try:
        return Path(given or "~/.cache/minedraft").expanduser()
    except RuntimeError as error:  # no such user, or one without a home
        raise ConfigError(
            f"cache directory {given or '~/.cache/minedraft'}: {error} Set MINEDRAFT_CACHE"
        ) from None


@contextmanager
def locked(cache: Path, name: str, *, timeout_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the lock of one name, so that only one process makes a directory.

    The lock is the kernel's: it falls with the process that holds it, however that ends.

    Raises:
        ConfigError: Another process held it for ``timeout_s``, or the cache cannot be written.
    """
    path = cache / "locks" / f"{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=timeout_s)
        lock.acquire()
    except Timeout:
        message = f"lock {path} has been held for {timeout_s:.0f} s by another process"
        raise ConfigError(message) from None
    except OSError as error:
        raise ConfigError(f"cache directory {cache} cannot be used: {error}") from error
    try:
        yield
    finally:
        lock.release()


def build_directory(
    cache: Path,
    name: str,
    provenance: Mapping[str, object],
    build: Callable[[Path], None],
) -> Path:
    """Return ``<cache>/models/<name>``, calling ``build`` first if it is not there yet.

    ``build`` fills an empty temporary directory, which is renamed when complete: a half-made one is
    never seen. The caller holds the lock of ``name``.

    Args:
        cache: Root of the cache.
        name: Directory name.
        provenance: What it is made from; an existing directory that says otherwise is replaced.
        build: Fills the directory it is given; whatever it raises passes through.

    Returns:
        The complete directory.
    """
    final = cache / "models" / name
    if is_current(final, provenance):
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    # A leading dot and a tail of its own: nothing takes it for a model, and dead ones can be swept.
    for dead in final.parent.glob(f".{name}.*"):
        shutil.rmtree(dead, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=final.parent))
    try:
        build(temporary)
        (temporary / PROVENANCE_FILE).write_text(json.dumps(provenance, indent=1) + "\n")
        # mkdtemp makes it for the owner only: others could not use a shared cache.
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            file.chmod(0o644)
        if final.exists():
            final.rename(temporary.with_name(f"{temporary.name}.old"))
        temporary.rename(final)
    finally:
        for left in final.parent.glob(f"{temporary.name}*"):
            shutil.rmtree(left, ignore_errors=True)
    return final


def is_current(directory: Path, provenance: Mapping[str, object]) -> bool:
    """Whether the directory is complete and was made from exactly this."""
    try:
        found = json.loads((directory / PROVENANCE_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return False
    return bool(found == dict(provenance))
