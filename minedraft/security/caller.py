"""Identifies the caller of an RPC for its handler. Only the interceptor sets it.

An identity is made of a certificate's names or of a token's hash, never of a key or a serial
number: a caller whose certificate was renewed is still the same one.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.security.roles import roles_of_certificate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minedraft.security.roles import Role

_NAMES: Final = (
    "x509_common_name",
    "x509_subject",
    "peer_uri",
    "peer_dns",
    "peer_email",
    "peer_ip",
)
"""Properties in which gRPC shows the names of a certificate."""
_MAX_SHOWN_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller, or all callers without proof."""

    name: str
    """Name for the log."""
    identity: bytes = field(default=b"", repr=False)
    """Equal for calls of the same caller; empty: the caller proved nothing."""
    roles: frozenset[Role] = frozenset()

    @property
    def is_proven(self) -> bool:
        """Whether other callers may share this identity."""
        return bool(self.identity)


ANYBODY: Final = Caller("anybody")
"""Every caller of a server that demands no proof."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYBODY)


def current_caller() -> Caller:
    """Return the caller of the RPC that this task serves."""
    return _current.get()


def note_caller(caller: Caller) -> None:
    """Set the caller of the RPC that this task serves; a task serves one call only."""
    _current.set(caller)


def caller_of_certificate(auth_context: Mapping[str, Iterable[bytes]]) -> Caller:
    """Build the caller that a peer's certificate names, as gRPC shows it after the handshake."""
    names = [(kind, sorted(auth_context.get(kind, ()))) for kind in _NAMES]
    common = auth_context.get("x509_common_name", ())
    shown = ", ".join(name.decode("utf-8", "replace")[:_MAX_SHOWN_CHARS] for name in common)
    return Caller(
        shown or "a certificate without a common name",
        hashlib.sha256(repr(names).encode()).digest(),
        roles_of_certificate(auth_context),
    )
