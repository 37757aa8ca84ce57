"""Exceptions <-> gRPC status, in both directions.

A handler raises a `MineDraftError`; the peer gets its status code, the class name in trailing
metadata, and google.rpc details: BadRequest names the field, RetryInfo the delay. Anything else a
handler raises is a bug: it becomes INTERNAL without its text, because texts may quote prompts.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from minedraft import errors

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator

log = structlog.get_logger(__name__)
Message = TypeVar("Message")

ERROR_KEY = "minedraft-error"
DOMAIN = "minedraft"
_MAX_TEXT_BYTES = 1000
"""Longest message on the wire, where it may appear three times, percent-encoded and in base64."""


def _tree(cls: type[errors.MineDraftError]) -> Iterator[type[errors.MineDraftError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _tree(sub)


BY_NAME = {cls.__name__: cls for cls in _tree(errors.MineDraftError)}


class UnknownMethodError(errors.ProtocolError):
    """Describe a peer without the method: another service, or another version of this one.

    Ours alone: on the wire it is gRPC's UNIMPLEMENTED, and callers say what they looked for.
    """


def to_status(err: errors.MineDraftError) -> status_pb2.Status:
    """Build the google.rpc.Status that carries `err`."""
    details: list[any_pb2.Any] = []
    text = _shorten(str(err))

    def add(message: Any) -> None:  # any google.rpc detail message
        packed = any_pb2.Any()
        packed.Pack(message)
        details.append(packed)

    add(error_details_pb2.ErrorInfo(reason=type(err).__name__, domain=DOMAIN))
    if isinstance(err, errors.InvalidRequestError) and err.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=err.field, description=text)
        add(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(err, errors.CapacityError):
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(err.retry_after_s * 1000))
        add(error_details_pb2.RetryInfo(retry_delay=delay))
    code: int = grpc.StatusCode[err.status].value[0]
    return status_pb2.Status(code=code, message=text, details=details)


async def abort(
    context: grpc.aio.ServicerContext[Any, Any], err: errors.MineDraftError
) -> NoReturn:
    """End the RPC with `err`'s status, details and class name."""
    wire = rpc_status.to_status(to_status(err))
    metadata = (*wire.trailing_metadata, (ERROR_KEY, type(err).__name__))
    if isinstance(err, errors.CapacityError):
        metadata = (*metadata, ("retry-after", f"{err.retry_after_s:g}"))
    await context.abort(wire.code, wire.details, trailing_metadata=metadata)


_BY_CODE: dict[grpc.StatusCode, type[errors.MineDraftError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineError,
    grpc.StatusCode.UNIMPLEMENTED: UnknownMethodError,
    grpc.StatusCode.UNAUTHENTICATED: errors.AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDeniedError,
}
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""CANCELLED: not by us, that is asyncio.CancelledError; the peer went down with the call."""
_UNKNOWN = grpc.StatusCode.UNKNOWN
_BROKEN = "Stream removed"
"""How grpc begins the text of UNKNOWN when a connection brought bytes that are no frame."""

_PEER_SAID_TOO_MUCH = ("CLIENT: Received message larger", "SERVER: Sent message larger")
"""How grpc begins when an answer is over the limit, which is not the caller's fault."""
_TOO_MANY_CALLS = "Concurrent RPC limit"
"""How grpc begins when a server has reached its limit of calls."""


def readable(message: Message | None, what: str) -> Message:
    """Refuse None, which grpc.aio returns to a client for bytes that do not parse.

    Raises:
        ProtocolError: names what it was.
    """
    if message is None:
        raise errors.ProtocolError(f"{what} does not parse")
    return message


def from_rpc_error(err: grpc.aio.AioRpcError) -> errors.MineDraftError:
    """Rebuild the exception the peer raised, or the nearest kind of failure."""
    text = err.details() or ""
    metadata = {str(key): value for key, value in (err.trailing_metadata() or ())}
    cls = BY_NAME.get(str(metadata.get(ERROR_KEY, "")))
    if cls is not None:
        rebuilt = cls(text)
        if isinstance(rebuilt, errors.InvalidRequestError):
            rebuilt.field = _field_of(err)
        if isinstance(rebuilt, errors.CapacityError) and "retry-after" in metadata:
            rebuilt.retry_after_s = _seconds(metadata["retry-after"], rebuilt.retry_after_s)
        return rebuilt
    match err.code():
        case code if code in _GONE or (code is _UNKNOWN and text.startswith(_BROKEN)):
            return errors.WorkerUnavailableError(f"{code.name}: {text}")
        case code if code in _BY_CODE:
            return _BY_CODE[code](f"{code.name}: {text}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if text.startswith(_TOO_MANY_CALLS):
            return errors.QueueFullError(f"RESOURCE_EXHAUSTED: {text}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if not text.startswith(_PEER_SAID_TOO_MUCH):
            # grpc's own limits: message size
            return errors.InvalidRequestError(f"RESOURCE_EXHAUSTED: {text}")
        case code:
            return errors.ProtocolError(f"{code.name}: {text}")


def _shorten(text: str) -> str:
    """Cut a message that quotes a long value: above 8 KiB of metadata gRPC drops the class name."""
    raw = text.encode("utf-8", errors="replace")
    if len(raw) <= _MAX_TEXT_BYTES:
        return raw.decode()
    return raw[:_MAX_TEXT_BYTES].decode(errors="ignore") + " ..."


def _seconds(text: str | bytes, default: float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return default
    return seconds if math.isfinite(seconds) and seconds >= 0 else default


def _field_of(err: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(err)  # type: ignore[arg-type]  # AioRpcError has the same three
    for detail in status.details if status is not None else ():
        request = error_details_pb2.BadRequest()
        if detail.Unpack(request) and request.field_violations:
            return str(request.field_violations[0].field)
    return ""


def _leaf(err: Exception) -> Exception:
    """Return the main error of an exception group: a bug before a MineDraftError."""
    while isinstance(err, ExceptionGroup):
        rank = sorted(err.exceptions, key=lambda sub: isinstance(sub, errors.MineDraftError))
        err = rank[0]
    return err


def _let_go(err: BaseException | None) -> None:
    """Drop the frames of an error and of its causes: they hold the request.

    grpc keeps the error of an aborted call in the call's state, to which the frames lead back: a
    cycle. A refused request of 4 MB would wait in it for the collector.
    """
    seen: set[int] = set()
    while err is not None and id(err) not in seen:
        seen.add(id(err))
        err.__traceback__ = None
        err = err.__cause__ or err.__context__


async def _fail(context: grpc.aio.ServicerContext[Any, Any], err: Exception) -> NoReturn:
    group, err = err, _leaf(err)
    if isinstance(err, DecodeError):  # of a stream; see `first_message` for single requests
        err = errors.InvalidRequestError(str(err))  # names the type; no words of the message
    if isinstance(err, grpc.aio.AbortError):  # the handler already ended the RPC itself
        raise err
    try:
        if isinstance(err, errors.MineDraftError):
            _let_go(group)
            _let_go(err)
            await abort(context, err)
        if isinstance(err, grpc.aio.InternalError):
            raise err
        log.error("rpc.failed", error=type(err).__name__, exc_info=err)
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(err).__name__}")
    except grpc.aio.InternalError:
        # The core has ended the call already: a compressed message, a connection that is gone.
        # As for any call that is over, and without the traceback that grpc would log.
        raise asyncio.CancelledError from None


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns exceptions of handlers into a status, for all four kinds of RPC."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # grpc's handler type has four optional callables; nothing narrower fits
        """Wrap the handler."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        wrap = _wrap_stream if handler.response_streaming else _wrap_unary
        kinds = {
            (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
            (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
            (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
            (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
        }
        name, build = kinds[handler.request_streaming, handler.response_streaming]
        inner = getattr(handler, name)
        if not hasattr(inner, "__code__") and not hasattr(inner, "__func__"):
            return handler  # grpcio's own sync handlers (health, reflection) stay as they are
        if not inspect.isasyncgenfunction(inner):
            wrap = _wrap_unary  # a coroutine, also where it streams through context.write
        return build(wrap(inner), handler.request_deserializer, handler.response_serializer)


def _wrap_unary(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def unary(request: Any, context: Any) -> Any:
        try:
            return await inner(request, context)
        except Exception as err:  # noqa: BLE001 turned into a status, never swallowed
            request = None  # as `_let_go`: this frame is part of the cycle
            await _fail(context, err)

    return unary


def _wrap_stream(
    inner: Callable[..., AsyncGenerator[Any, None]],
) -> Callable[..., AsyncIterator[Any]]:
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            # Closed here, in the task of the RPC: left to the collector, an abort would come late.
            async with aclosing(inner(request, context)) as items:
                async for item in items:
                    yield item
        except Exception as err:  # noqa: BLE001 turned into a status, never swallowed
            request = None  # as `_let_go`: this frame is part of the cycle
            await _fail(context, err)

    return stream
