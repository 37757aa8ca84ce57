"""Decides which directories a peer may name. Follows every symbolic link first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.errors import PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Sequence


def resolve_under(roots: Sequence[Path], path: str | Path) -> Path:
    """Resolve a path that a peer named, and check that it lies under a root.

    What comes back has no link in it, so opening it opens what was checked. Reads the file system:
    not in an event loop.

    Args:
        roots: Directories under which paths are allowed, or which are allowed themselves; none:
            nothing is.
        path: As it was named: absolute, or relative to one of the roots.

    Returns:
        The absolute path, links resolved.

    Raises:
        PermissionDeniedError: it is, or leads, elsewhere; it has `..` in it; or it does not exist,
            which a caller without permission must not distinguish. Names the path.
    """
    asked = Path(path)
    if not str(path) or "\0" in str(path) or ".." in asked.parts:
        raise _refusal(path, "want a path without '..'")
    for root in roots:
        try:
            home = root.resolve(strict=True)
            found = (home / asked).resolve(strict=True)  # an absolute path stands for itself
        except (OSError, RuntimeError):  # not there, no right to look, or a loop of links
            continue
        if found.is_relative_to(home):
            return found
    allowed = ", ".join(map(str, roots)) or "no directory"
    # By name alone: a peer must not learn what exists elsewhere.
    is_elsewhere = asked.is_absolute() and not any(asked.is_relative_to(root) for root in roots)
    raise _refusal(path, f"{'is not' if is_elsewhere else 'not found'} under {allowed}")


def _refusal(path: str | Path, why: str) -> PermissionDeniedError:
    return PermissionDeniedError(f"path={str(path)[:256]!r}: {why}")
