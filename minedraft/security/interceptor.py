"""Identifies every caller before any handler runs, and refuses what its role may not call.

A caller is what its token says where tokens are asked for, else what its certificate says.
"""

from __future__ import annotations

import inspect
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from minedraft.errors import AuthenticationError, MineDraftError, PermissionDeniedError
from minedraft.repeats import Repeats
from minedraft.security.caller import caller_of_certificate, note_caller
from minedraft.security.roles import allowed_roles

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from minedraft.security.caller import Caller
    from minedraft.security.credentials import Credentials
    from minedraft.security.roles import Role

log = structlog.get_logger(__name__)

_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Stands inside the interceptor that turns our errors into statuses.

    Args:
        credentials: Whom to believe.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._repeats = Repeats()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler: the caller is known only when it runs."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        kind = next(name for name in _KINDS if getattr(handler, name) is not None)
        inner = getattr(handler, kind)
        wrap = _guard_stream if inspect.isasyncgenfunction(inner) else _guard_call
        return handler._replace(**{kind: wrap(inner, lambda context: self._admit(method, context))})

    def _admit(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Check that the caller may call the method, and set the caller.

        Raises:
            AuthenticationError: the caller is unknown.
            PermissionDeniedError: the caller has other roles.
        """
        try:
            caller = self._caller(context)
            allowed = allowed_roles(method)
            if not caller.roles & allowed:
                raise PermissionDeniedError(
                    f"{method} is for {_names(allowed)}; the caller is {_names(caller.roles)}"
                )
        except MineDraftError as err:
            peer = context.peer()
            # A stranger may call as often as it likes, from a new port each time.
            repeated = self._repeats.facts(f"{peer.rpartition(':')[0]}\0{method}\0{err}")
            if repeated is not None:
                log.warning("auth.refused", method=method, peer=peer, why=str(err), **repeated)
            raise
        if "Admin/" in method and "/Get" not in method:
            log.info("auth.admin", method=method, peer=context.peer(), caller=caller.name)
        note_caller(caller)

    def _caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        if self._credentials.config.is_mtls:
            return caller_of_certificate(context.auth_context())
        metadata = context.invocation_metadata() or ()
        sent = [str(value) for key, value in metadata if key == "authorization"]
        if len(sent) != 1:
            raise AuthenticationError("want one token, as `authorization: Bearer <token>`")
        caller = self._credentials.tokens.caller_of(sent[0])
        if not caller.roles:
            raise AuthenticationError("the token is unknown here")
        return caller


def _guard_call(inner: Callable[..., Any], admit: Callable[[Any], None]) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        admit(context)
        return await inner(request, context)

    return call


def _guard_stream(inner: Callable[..., Any], admit: Callable[[Any], None]) -> Callable[..., Any]:
    async def stream(request: Any, context: Any) -> AsyncGenerator[Any, None]:
        admit(context)
        async with aclosing(inner(request, context)) as answers:
            async for answer in answers:
                yield answer

    return stream


def _names(roles: frozenset[Role]) -> str:
    return ", ".join(sorted(role.value for role in roles)) or "nobody"
