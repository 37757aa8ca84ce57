"""Bearer tokens of a file: those that a server accepts, and the one that this side sends. Pure.

A line is `role token`; a server may keep `role sha256:<hex>` instead, so that what it accepts
cannot be used to call others. `#` begins a comment. A token never appears in an error or a repr.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError
from minedraft.security.caller import Caller
from minedraft.security.roles import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_TOKEN_CHARS: Final = 16
_MAX_TOKEN_CHARS: Final = 4096
_HASHED: Final = "sha256:"
_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class _Entry:
    role: Role
    digest: bytes = field(repr=False)
    secret: str = field(repr=False)
    """Empty if the file has only the hash."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The tokens of one file."""

    entries: tuple[_Entry, ...] = ()

    @classmethod
    def parse(cls, text: str, path: str) -> TokenTable:
        """Read a token file's text.

        Raises:
            ConfigError: a line is not `role token`, or a token is too short to be a secret.
        """
        lines = ((number, line.partition("#")[0].split()) for number, line in _numbered(text))
        return cls(
            tuple(_entry(words, f"{path} line {number}") for number, words in lines if words)
        )

    def caller_of(self, authorization: str) -> Caller:
        """Return the caller with this `authorization` metadata; an unknown one has no roles.

        Compares with every entry, in constant time each: how long it takes says nothing.
        """
        digest = b""
        if (
            authorization[: len(_SCHEME)].lower() == _SCHEME
            and len(authorization) < _MAX_TOKEN_CHARS
        ):
            digest = _digest(authorization[len(_SCHEME) :].strip())
        same = [hmac.compare_digest(entry.digest, digest) for entry in self.entries]
        pairs = zip(self.entries, same, strict=True)
        return Caller("a token", digest, frozenset(e.role for e, is_same in pairs if is_same))

    def own(self, roles: Sequence[Role]) -> str:
        """Return the token that this side sends: of the first of `roles` that has one, or ""."""
        for role in roles:
            for entry in self.entries:
                if entry.role is role and entry.secret:
                    return entry.secret
        return ""


def authorization_of(token: str) -> tuple[str, str]:
    """Return the metadata that carries a token."""
    return ("authorization", f"Bearer {token}")


def _numbered(text: str) -> enumerate[str]:
    return enumerate(text.splitlines(), start=1)


def _entry(words: list[str], where: str) -> _Entry:
    roles = {role.value: role for role in Role}
    if len(words) != 2 or words[0] not in roles:  # noqa: PLR2004 `role token`
        raise ConfigError(f"token_file={where}: want `role token` with one of {', '.join(roles)}")
    role, token = roles[words[0]], words[1]
    if token.startswith(_HASHED):
        try:
            digest = bytes.fromhex(token.removeprefix(_HASHED))
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise ConfigError(f"token_file={where}: want {_HASHED} and 64 hexadecimal digits")
        return _Entry(role, digest, "")
    if not MIN_TOKEN_CHARS <= len(token) < _MAX_TOKEN_CHARS or not token.isascii():
        raise ConfigError(
            f"token_file={where}: a token of {len(token)} characters, want "
            f"{MIN_TOKEN_CHARS}..{_MAX_TOKEN_CHARS - 1}, ASCII"
        )
    return _Entry(role, _digest(token), token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
