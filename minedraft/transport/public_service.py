"""The public gRPC servicers: protobuf outside, a handler that speaks domain values inside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from minedraft.errors import InvalidRequestError
from minedraft.security.caller import current_caller
from minedraft.transport import admin_codec, public_codec, request_sizes, text_codec, wire_sizes
from minedraft.transport.request_sizes import check_abort, check_generate
from minedraft.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from minedraft.admin import ServerInfo, Span, Status, SwapOrder, SwapResult, TargetInfo
    from minedraft.api import Event, GenerationRequest, TokenizeOrder, TokenizerInfo
    from minedraft.security.caller import Caller
    from minedraft.types import Mode

GENERATION_SERVICE = "minedraft.v1.Generation"
ADMIN_SERVICE = "minedraft.v1.Admin"
_RAW_METHODS: Final = ("Generate", "Abort", "Tokenize", "Detokenize")
_M = TypeVar("_M", bound=Message)


class PublicHandler(Protocol):
    """The methods of a coordinator for callers and operators."""

    def generate(self, request: GenerationRequest, caller: Caller) -> AsyncIterator[Event]:
        """Yield the events of one request. Leaving the iterator aborts it."""

    def max_model_len(self) -> int:
        """Most tokens of one sequence."""

    def abort(
        self, request_ids: Sequence[str], resume_tokens: Sequence[bytes], caller: Caller
    ) -> int:
        """Abort requests of the caller; return how many were live."""

    def target_info(self) -> TargetInfo:
        """The target model."""

    def server_info(self) -> ServerInfo:
        """The server."""

    async def tokenize(self, order: TokenizeOrder) -> tuple[int, ...]:
        """Return the ids of a text or a chat."""

    async def detokenize(self, token_ids: tuple[int, ...], *, skip_special_tokens: bool) -> str:
        """Return the text of ids."""

    def tokenizer_info(self) -> TokenizerInfo:
        """The target's tokenizer."""

    async def status(self) -> Status:
        """The state of everything."""

    def set_mode(self, mode: Mode) -> None:
        """Change the mode."""

    async def swap_drafter(self, order: SwapOrder, timeout_s: float | None) -> SwapResult:
        """Change the drafter while requests run."""

    def spans(self, max_spans: int, since_unix_ns: int) -> tuple[Span, ...]:
        """Recent steps."""

    async def metrics(self) -> str:
        """The metrics, as Prometheus reads them."""


_MAX_SPANS = 20_000
"""Most spans per answer: about 2 MB."""


def _timeline(spans: tuple[Span, ...]) -> admin_pb2.GetTimelineResponse:
    return admin_pb2.GetTimelineResponse(spans=map(admin_codec.span_to_proto, spans))


class GenerationServicer(generation_pb2_grpc.GenerationServicer):
    """minedraft.v1.Generation over a `PublicHandler`."""

    def __init__(self, handler: PublicHandler) -> None:
        self._handler = handler

    def register(self, server: grpc.aio.Server) -> str:
        """Add it to a server; returns its full name."""
        generation_pb2_grpc.add_GenerationServicer_to_server(self, _RawRequests(server))
        return GENERATION_SERVICE

    async def Generate(  # noqa: N802 gRPC's name
        self, request: generation_pb2.GenerateRequest | bytes, _context: Any
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        """Stream the events of a request. A client that leaves, or its deadline, aborts it."""
        max_model_len = self._handler.max_model_len()
        if isinstance(request, bytes):
            wire_sizes.check_generate(request, max_model_len=max_model_len)
            request = _parse(generation_pb2.GenerateRequest, request)
        check_generate(request, max_model_len=max_model_len)
        events = self._handler.generate(public_codec.request_from_proto(request), current_caller())
        try:
            async for event in events:
                yield public_codec.event_to_proto(event)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator

    async def Abort(  # noqa: N802 gRPC's name
        self, request: generation_pb2.AbortRequest | bytes, _context: Any
    ) -> generation_pb2.AbortResponse:
        """Abort requests."""
        if isinstance(request, bytes):
            wire_sizes.check_abort(request)
            request = _parse(generation_pb2.AbortRequest, request)
        check_abort(request)
        num_aborted = self._handler.abort(
            tuple(request.request_ids), tuple(request.resume_tokens), current_caller()
        )
        return generation_pb2.AbortResponse(num_aborted=num_aborted)

    async def GetModelInfo(  # noqa: N802 gRPC's name
        self, _request: generation_pb2.GetModelInfoRequest, _context: Any
    ) -> generation_pb2.GetModelInfoResponse:
        """The target model."""
        return public_codec.target_info_to_proto(self._handler.target_info())

    async def GetServerInfo(  # noqa: N802 gRPC's name
        self, _request: generation_pb2.GetServerInfoRequest, _context: Any
    ) -> generation_pb2.GetServerInfoResponse:
        """The server."""
        return public_codec.server_info_to_proto(self._handler.server_info())

    async def Tokenize(  # noqa: N802 gRPC's name
        self, request: generation_pb2.TokenizeRequest | bytes, _context: Any
    ) -> generation_pb2.TokenizeResponse:
        """Tokenize a text or a chat."""
        if isinstance(request, bytes):
            wire_sizes.check_tokenize(request)
            request = _parse(generation_pb2.TokenizeRequest, request)
        request_sizes.check_tokenize(request)
        token_ids = await self._handler.tokenize(text_codec.order_from_proto(request))
        return generation_pb2.TokenizeResponse(token_ids=token_ids)

    async def Detokenize(  # noqa: N802 gRPC's name
        self, request: generation_pb2.DetokenizeRequest | bytes, _context: Any
    ) -> generation_pb2.DetokenizeResponse:
        """Turn ids into text."""
        if isinstance(request, bytes):
            wire_sizes.check_detokenize(request)
            request = _parse(generation_pb2.DetokenizeRequest, request)
        request_sizes.check_detokenize(request)
        text = await self._handler.detokenize(
            tuple(request.token_ids), skip_special_tokens=request.skip_special_tokens
        )
        return generation_pb2.DetokenizeResponse(text=text)

    async def GetTokenizerInfo(  # noqa: N802 gRPC's name
        self, _request: generation_pb2.GetTokenizerInfoRequest, _context: Any
    ) -> generation_pb2.GetTokenizerInfoResponse:
        """The target's tokenizer."""
        return text_codec.tokenizer_info_to_proto(self._handler.tokenizer_info())


class _RawRequests:
    """Registers generated handlers; those of large requests get raw bytes."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, _handlers: Any) -> None:
        """Do nothing: `add_registered_method_handlers` registers both."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Register handlers."""
        raw = {
            name: handler._replace(request_deserializer=None) if name in _RAW_METHODS else handler
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, raw),))
        self._server.add_registered_method_handlers(service, raw)


def _parse(kind: type[_M], data: bytes) -> _M:
    try:
        return kind.FromString(data)
    except DecodeError as err:
        raise InvalidRequestError(f"the request is no {kind.DESCRIPTOR.name}: {err}") from None


class AdminServicer(admin_pb2_grpc.AdminServicer):
    """minedraft.v1.Admin over a `PublicHandler`."""

    def __init__(self, handler: PublicHandler) -> None:
        self._handler = handler

    def register(self, server: grpc.aio.Server) -> str:
        """Add it to a server; returns its full name."""
        admin_pb2_grpc.add_AdminServicer_to_server(self, server)
        return ADMIN_SERVICE

    async def GetStatus(  # noqa: N802 gRPC's name
        self, _request: admin_pb2.GetStatusRequest, _context: Any
    ) -> admin_pb2.GetStatusResponse:
        """The state of everything."""
        return admin_codec.status_to_proto(await self._handler.status())

    async def SetMode(  # noqa: N802 gRPC's name
        self, request: admin_pb2.SetModeRequest, _context: Any
    ) -> admin_pb2.SetModeResponse:
        """Change the mode."""
        self._handler.set_mode(admin_codec.mode_from_proto(request))
        return admin_pb2.SetModeResponse()

    async def SwapDrafter(  # noqa: N802 gRPC's name
        self, request: admin_pb2.SwapDrafterRequest, context: Any
    ) -> admin_pb2.SwapDrafterResponse:
        """Change the drafter while requests run."""
        order = admin_codec.swap_order_from_proto(request)
        result = await self._handler.swap_drafter(order, context.time_remaining())
        return admin_codec.swap_result_to_proto(result)

    async def GetTimeline(  # noqa: N802 gRPC's name
        self, request: admin_pb2.GetTimelineRequest, _context: Any
    ) -> admin_pb2.GetTimelineResponse:
        """Recent steps."""
        wanted = min(request.max_spans or _MAX_SPANS, _MAX_SPANS)
        spans = self._handler.spans(wanted, request.since_unix_ns)
        return await asyncio.to_thread(_timeline, spans)

    async def GetMetrics(  # noqa: N802 gRPC's name
        self, _request: admin_pb2.GetMetricsRequest, _context: Any
    ) -> admin_pb2.GetMetricsResponse:
        """The metrics, as Prometheus reads them."""
        return admin_pb2.GetMetricsResponse(text=await self._handler.metrics())
