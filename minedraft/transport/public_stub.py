"""The public services as async functions: values in, values out, errors of `minedraft.errors`.

The one place of a client that touches the wire. It neither retries nor resumes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc

from minedraft.errors import PreconditionError, RequestAbortedError
from minedraft.transport import admin_codec, public_codec, text_codec
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES
from minedraft.transport.home_process import HomeProcess
from minedraft.transport.status import from_rpc_error, readable
from minedraft.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from minedraft.admin import ServerInfo, Span, Status, SwapOrder, SwapResult, TargetInfo
    from minedraft.api import Event, GenerationRequest, TokenizeOrder, TokenizerInfo
    from minedraft.types import Mode


class PublicStub:
    """`Generation` and `Admin` of one coordinator.

    Every method raises only classes of `minedraft.errors`; `timeout_s` is the deadline of the
    whole call, None: none.

    Args:
        channel: For calls with one answer.
        streams: For generations. With a connection of their own: as many as a connection carries
            would hold up even the call that aborts one.
        home: The process of the channels; None: this one.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        streams: grpc.aio.Channel,
        home: HomeProcess | None = None,
    ) -> None:
        self._generation = generation_pb2_grpc.GenerationStub(channel)
        self._generate = generation_pb2_grpc.GenerationStub(streams).Generate
        self._admin = admin_pb2_grpc.AdminStub(channel)
        self._channels = (channel, streams)
        self._home = home or HomeProcess()
        self._streams: set[grpc.aio.Call] = set()  # as many as the caller reads

    async def close(self) -> None:
        """Close the channels; live streams raise `RequestAbortedError`. In a fork, do nothing."""
        if not self._home.is_here:
            return
        for call in self._streams:  # the channel finds only those that wait at this moment
            call.cancel()
        for channel in self._channels:
            await channel.close()

    async def generate(
        self, request: GenerationRequest, *, timeout_s: float | None
    ) -> AsyncGenerator[Event, None]:
        """Generate; yields events. Closing the iterator cancels the call."""
        message = public_codec.request_to_proto(request, max_bytes=MAX_CLIENT_MESSAGE_BYTES)
        async with self._our_errors():
            call = self._generate(message, timeout=timeout_s)
            self._streams.add(call)
            try:
                async for response in call:
                    yield public_codec.event_from_proto(readable(response, "an event"))
            finally:
                self._streams.discard(call)
                # Dropping a call does not end it in every grpcio: grpc#43462.
                call.cancel()

    async def abort(
        self,
        request_ids: Sequence[str],
        resume_tokens: Sequence[bytes] = (),
        *,
        timeout_s: float | None,
    ) -> int:
        """Abort requests; return how many were live.

        Args:
            request_ids: Which.
            resume_tokens: None, or one per id: what the request was begun with, b"" if unknown.
            timeout_s: Deadline of the call; None: none.
        """
        request = public_codec.abort_to_proto(request_ids, resume_tokens)
        response = await self._ask(self._generation.Abort, request, timeout=timeout_s)
        return int(response.num_aborted)

    async def get_model_info(self, *, timeout_s: float | None) -> TargetInfo:
        """Read the target model."""
        request = generation_pb2.GetModelInfoRequest()
        response = await self._ask(self._generation.GetModelInfo, request, timeout=timeout_s)
        return public_codec.target_info_from_proto(response)

    async def get_server_info(
        self, *, timeout_s: float | None, wait_for_ready: bool = False
    ) -> ServerInfo:
        """Read the server's version and limits; `wait_for_ready` waits for a starting server."""
        request = generation_pb2.GetServerInfoRequest()
        response = await self._ask(
            self._generation.GetServerInfo,
            request,
            timeout=timeout_s,
            wait_for_ready=wait_for_ready,
        )
        return public_codec.server_info_from_proto(response)

    async def tokenize(self, order: TokenizeOrder, *, timeout_s: float | None) -> tuple[int, ...]:
        """Tokenize a text or a chat."""
        request = text_codec.order_to_proto(order)
        response = await self._ask(self._generation.Tokenize, request, timeout=timeout_s)
        return tuple(response.token_ids)

    async def detokenize(
        self, token_ids: Sequence[int], *, skip_special_tokens: bool, timeout_s: float | None
    ) -> str:
        """Turn ids into text."""
        request = text_codec.ids_to_proto(token_ids, skip_special_tokens=skip_special_tokens)
        response = await self._ask(self._generation.Detokenize, request, timeout=timeout_s)
        return str(response.text)

    async def get_tokenizer_info(self, *, timeout_s: float | None) -> TokenizerInfo:
        """Read the target's tokenizer."""
        request = generation_pb2.GetTokenizerInfoRequest()
        response = await self._ask(self._generation.GetTokenizerInfo, request, timeout=timeout_s)
        return text_codec.tokenizer_info_from_proto(response)

    async def get_status(self, *, timeout_s: float | None) -> Status:
        """Read the coordinator's state."""
        response = await self._ask(
            self._admin.GetStatus, admin_pb2.GetStatusRequest(), timeout=timeout_s
        )
        return admin_codec.status_from_proto(response)

    async def set_mode(self, mode: Mode, *, timeout_s: float | None) -> None:
        """Change the mode."""
        request = admin_codec.mode_to_proto(mode)
        await self._ask(self._admin.SetMode, request, timeout=timeout_s)

    async def swap_drafter(self, order: SwapOrder, *, timeout_s: float | None) -> SwapResult:
        """Swap the drafter; return when the new one drafts."""
        request = admin_codec.swap_order_to_proto(order)
        response = await self._ask(self._admin.SwapDrafter, request, timeout=timeout_s)
        return admin_codec.swap_result_from_proto(response)

    async def get_timeline(
        self, *, max_spans: int, since_unix_ns: int, timeout_s: float | None
    ) -> tuple[Span, ...]:
        """Read the newest spans that began after `since_unix_ns`, oldest first."""
        request = admin_codec.timeline_order_to_proto(max_spans, since_unix_ns)
        response = await self._ask(self._admin.GetTimeline, request, timeout=timeout_s)
        return tuple(admin_codec.span_from_proto(span) for span in response.spans)

    async def get_metrics(self, *, timeout_s: float | None) -> str:
        """Read the metrics, as Prometheus reads them."""
        request = admin_pb2.GetMetricsRequest()
        response = await self._ask(self._admin.GetMetrics, request, timeout=timeout_s)
        return str(response.text)

    async def _ask(self, method: Callable[..., Any], request: Any, **how: Any) -> Any:
        async with self._our_errors():
            answer = await method(request, **how)
        return readable(answer, f"the answer to {type(request).__name__}")

    @asynccontextmanager
    async def _our_errors(self) -> AsyncIterator[None]:
        self._home.check()
        try:
            yield
        except grpc.aio.AioRpcError as err:
            raise from_rpc_error(err) from None
        except grpc.aio.UsageError as err:  # a call on a closed channel
            raise PreconditionError(f"the client is closed: {err}") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # grpc says CancelledError too when the channel was closed under a live call.
            raise RequestAbortedError("the client was closed while the call was live") from None
