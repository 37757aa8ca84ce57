"""The outermost layer: who may come in, the id of the visit, and errors that no route caught.

Keys are the bearer tokens of the token file; with mTLS a certificate's role. Without either, which
only loopback or `--insecure` allows, any key passes.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import structlog

from minedraft.errors import AuthenticationError, MineDraftError, PermissionDeniedError
from minedraft.security.roles import Role, roles_of_certificate
from minedraft.services.gateway.outlet import Outlet
from minedraft.services.gateway.refusal import BUG, refusal_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from minedraft.security.credentials import Credentials

    App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

log = structlog.get_logger(__name__)

OPEN_PATHS: Final = frozenset({"/health", "/ping", "/version", "/docs", "/openapi.json"})
"""What is answered without a key: probes, and what is the same everywhere."""
READ_PATHS: Final = frozenset({"/metrics", "/load"})
"""What a monitor may read too."""
_CALLS: Final = frozenset({Role.CLIENT, Role.ADMIN})
_READS: Final = _CALLS | {Role.MONITOR}
_MAX_ID_CHARS: Final = 128
CERTIFICATE: Final = "minedraft.certificate"
"""Where a request's scope has the names of its connection's certificate."""


class Door:
    """ASGI application around another.

    Args:
        app: What is behind it.
        credentials: Whom to believe.
    """

    def __init__(self, app: App, credentials: Credentials) -> None:
        self._app = app
        self._credentials = credentials

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401  # ASGI
        """Serve one request."""
        if scope["type"] != "http":  # lifespan
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        visit_id = _visit_id(headers)
        own = [(b"x-request-id", visit_id)]
        outlet = Outlet(send, own)
        scope["minedraft.outlet"] = outlet
        is_started = False

        async def labelled(message: dict[str, Any]) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            self._admit(scope, headers)
            await self._app(scope, receive, labelled)
        except MineDraftError as err:
            if not is_started:
                await outlet.fail(refusal_of(err))
        except Exception:
            log.exception("request.failed", path=scope["path"][:64])
            if not is_started:
                await outlet.fail(BUG)

    def _admit(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Check that the caller may call.

        Raises:
            AuthenticationError: it is unknown.
            PermissionDeniedError: it has another role.
        """
        config = self._credentials.config
        path = scope["path"]
        if path in OPEN_PATHS or not config.authenticates or scope["method"] == "OPTIONS":
            return
        if config.is_mtls:
            roles = roles_of_certificate(scope.get(CERTIFICATE, {}))
        else:
            authorization = headers.get(b"authorization", b"").decode("latin-1")
            roles = self._credentials.tokens.caller_of(authorization).roles
            if not roles:
                raise AuthenticationError("want a known key, as `authorization: Bearer <key>`")
        if not roles & (_READS if path in READ_PATHS else _CALLS):
            raise PermissionDeniedError("this key's role may not call this")


def certificate_names(found: Mapping[str, Any] | None) -> dict[str, list[bytes]]:
    """Return the names of a peer's certificate as `roles_of_certificate` reads them.

    Args:
        found: What `getpeercert` says.
    """
    names: dict[str, list[bytes]] = {}
    for kind, value in (found or {}).get("subjectAltName", ()):
        names.setdefault({"URI": "peer_uri", "DNS": "peer_dns"}.get(kind, kind), []).append(
            value.encode()
        )
    for part in (found or {}).get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                names.setdefault("x509_common_name", []).append(value.encode())
    return names


def _visit_id(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the client's own id, or a drawn one. It is echoed, and nothing else."""
    given = headers.get(b"x-request-id", b"")
    return given if 0 < len(given) <= _MAX_ID_CHARS else secrets.token_hex(16).encode()
