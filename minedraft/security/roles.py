"""Maps each method to the roles that may call it. Without a row, no role may. Pure.

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
    """The role of a caller."""

    CLIENT = "client"  # generates
    MONITOR = "monitor"  # reads status, steps and models
    ADMIN = "admin"  # generates, reads and operates
    GATEWAY = "gateway"  # generates for its own callers, and reads status; changes nothing
    COORDINATOR = "coordinator"
    DRAFTER = "drafter"
    VERIFIER = "verifier"  # calls no service


_GENERATES: Final = frozenset({Role.CLIENT, Role.GATEWAY, Role.ADMIN, Role.COORDINATOR})
_READS: Final = frozenset({Role.MONITOR, Role.GATEWAY, Role.ADMIN})
_EXPLORES: Final = frozenset({Role.MONITOR, Role.ADMIN})
_OPERATES: Final = frozenset({Role.ADMIN})
_STEPS: Final = frozenset({Role.COORDINATOR})
_DRAFTS: Final = frozenset({Role.DRAFTER})

_BY_SERVICE: Final[Mapping[str, Mapping[str, frozenset[Role]]]] = {
    "minedraft.v1.Generation": {
        "Generate": _GENERATES,
        "Abort": _GENERATES,
        "GetModelInfo": _GENERATES | _READS,
        "GetServerInfo": _GENERATES | _READS,  # every client begins with it
        "GetTokenizerInfo": _GENERATES | _READS,
        "Tokenize": _GENERATES,
        "Detokenize": _GENERATES,
    },
    "minedraft.v1.Admin": {
        "GetStatus": _READS,
        "GetTimeline": _READS,
        "GetMetrics": _READS,
        "SetMode": _OPERATES,
        "SwapDrafter": _OPERATES,
    },
    "minedraft.v1.Verifier": dict.fromkeys(("GetInfo", "Session", "FormLink"), _STEPS),
    "minedraft.v1.Drafter": dict.fromkeys(
        ("GetInfo", "Session", "FormLink", "DropLink", "LoadModel"), _STEPS
    ),
    "minedraft.v1.TokenLink": dict.fromkeys(("SendPackets", "SetKey", "GetKey"), _DRAFTS),
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _EXPLORES},
}

POLICY: Final[Mapping[str, frozenset[Role]]] = MappingProxyType(
    {
        f"/{service}/{method}": roles
        for service, methods in _BY_SERVICE.items()
        for method, roles in methods.items()
    }
)
"""`/package.Service/Method` -> roles that may call it. Health is a server of its own, open to
everybody."""


def allowed_roles(method: str) -> frozenset[Role]:
    """Return the roles that may call `/package.Service/Method`."""
    return POLICY.get(method, frozenset())


def roles_of_certificate(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[Role]:
    """Return the roles that a peer's certificate names."""
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
