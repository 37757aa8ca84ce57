"""Who may call what: one table from service to roles. What it does not name, nobody may call. Pure.

A certificate names its role in a URI of its subject alternative names (`minedraft:role:drafter`),
or, where an authority issues DNS names only, in one of those (`drafter.role.minedraft`). Without
either, the common name may be that URI. Several roles in one certificate are all of them.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_URI: Final = "minedraft:role:"
_DNS: Final = ".role.minedraft"


class Role(Enum):
    """What a caller is."""

    CLIENT = "client"  # generates
    ADMIN = "admin"  # generates and operates
    COORDINATOR = "coordinator"
    DRAFTER = "drafter"
    VERIFIER = "verifier"  # calls nobody


POLICY: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        "minedraft.v1.Generation": frozenset({Role.CLIENT, Role.ADMIN, Role.COORDINATOR}),
        "minedraft.v1.Admin": frozenset({Role.ADMIN}),
        "minedraft.v1.Verifier": frozenset({Role.COORDINATOR}),
        "minedraft.v1.Drafter": frozenset({Role.COORDINATOR}),
        "minedraft.v1.TokenLink": frozenset({Role.DRAFTER}),
        "grpc.reflection.v1alpha.ServerReflection": frozenset({Role.ADMIN}),
    }
)
"""Service -> roles that may call its RPCs. Health is a server of its own and open to everybody."""


def allowed_roles(method: str) -> frozenset[Role]:
    """Return who may call `/package.Service/Method`."""
    return POLICY.get(method.strip("/").partition("/")[0], frozenset())


def roles_of_certificate(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[Role]:
    """Return the roles that a peer's certificate names, as gRPC shows it after the handshake."""
    named = {
        *_after(_URI, auth_context.get("peer_uri", ())),
        *_before(_DNS, auth_context.get("peer_dns", ())),
    }
    if not named:
        named = set(_after(_URI, auth_context.get("x509_common_name", ())))
    return frozenset(role for role in Role if role.value in named)


def _after(prefix: str, names: Iterable[bytes]) -> Iterator[str]:
    for name in _texts(names):
        if name.startswith(prefix):
            yield name.removeprefix(prefix)


def _before(suffix: str, names: Iterable[bytes]) -> Iterator[str]:
    for name in _texts(names):
        if name.endswith(suffix):
            yield name.removesuffix(suffix)


def _texts(names: Iterable[bytes]) -> Iterator[str]:
    for name in names:
        yield name.decode("utf-8", "replace")
