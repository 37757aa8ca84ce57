"""Finds secrets that other users of this machine can read. It warns, and refuses nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from minedraft.errors import ConfigError
from minedraft.security.tokens import TokenTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.security.config import SecurityConfig


class Exposed(NamedTuple):
    """A secret that every user of this machine can read."""

    setting: str
    """`tls_key` or `token_file`."""
    path: str
    mode: int
    """Permission bits of the file."""

    @property
    def remedy(self) -> str:
        """Command that mends it."""
        return f"chmod o-rwx {self.path}"

    def __str__(self) -> str:
        return (
            f"{self.setting}={self.path!r}: mode {self.mode:04o}, everybody on this machine can "
            f"read it: {self.remedy}"
        )


def exposed(config: SecurityConfig) -> Iterator[Exposed]:
    """Find keys and token files that every user can read. Reads files: keep off the event loop.

    A token file of hashes is no secret. What cannot be read is for `Credentials` to refuse.
    """
    for setting, path in (("tls_key", config.tls_key), ("token_file", config.token_file)):
        if not path:
            continue
        try:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
        except OSError:
            continue
        if mode & stat.S_IROTH and (setting == "tls_key" or _has_secrets(path)):
            yield Exposed(setting, path, mode)


def _has_secrets(path: str) -> bool:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        return any(entry.secret for entry in TokenTable.parse(text, path).entries)
    except (ConfigError, OSError):
        return True
