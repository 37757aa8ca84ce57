"""Who calls, for the handler of a call: what requests belong to. Set by the interceptor alone.

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
"""What gRPC shows of a certificate's names."""
_MAX_SHOWN_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller, or all those who prove nothing."""

    name: str
    """For the log."""
    identity: bytes = field(default=b"", repr=False)
    """Equal for calls of the same caller; empty: nothing is proven."""
    roles: frozenset[Role] = frozenset()

    @property
    def is_proven(self) -> bool:
        """Whether anybody but the caller could have this identity."""
        return bool(self.identity)


ANYBODY: Final = Caller("anybody")
"""Every caller of a server that asks for no proof."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYBODY)


def current_caller() -> Caller:
    """Return who made the call that this task serves."""
    return _current.get()


def note_caller(caller: Caller) -> None:
    """Remember who made the call that this task serves; a call's task serves no other."""
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
