"""The coordinator's end of a worker connection: handshake, link orders, one session."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
import structlog

from minedraft.errors import (
    IncompatibleWorkerError,
    MineDraftError,
    StateError,
    WorkerUnavailableError,
)
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.plans import (
    DraftPlan,
    DraftResult,
    LinkLost,
    StepBegun,
    VerifyPlan,
    VerifyResult,
    WorkerInfo,
    WorkerUsage,
)
from minedraft.transport import answer_codec, plan_codec
from minedraft.transport.channel import MAX_WORKER_MESSAGE_BYTES, open_channel
from minedraft.transport.plan_session import BEGUN
from minedraft.transport.status import UnknownMethodError, from_rpc_error, readable
from minedraft.transport.worker_service import link_spec_to_proto
from minedraft.v1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    types_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from minedraft.security.credentials import Credentials
    from minedraft.transport.fence import Coordinator
    from minedraft.types import ModelInfo

log = structlog.get_logger(__name__)

Plan = TypeVar("Plan")
Answer = TypeVar("Answer")

_MAX_DESCRIPTION_CHARS = 300
_NAMES = {
    types_pb2.LINK_TRANSPORT_LOCAL: Transport.LOCAL.value,
    types_pb2.LINK_TRANSPORT_GLOO: Transport.GLOO.value,
    types_pb2.LINK_TRANSPORT_GRPC: Transport.GRPC.value,
    types_pb2.LINK_TRANSPORT_NCCL: Transport.NCCL.value,
}


class _Connection(Generic[Plan, Answer]):
    """What both kinds of connection share. `send` queues plans.

    Args:
        address: `host:port`.
        encode: Plan -> message.
        decode: Message -> answer.
        credentials: Who this process is.
        server_name: Name of the worker's certificate, if not that of its address.
        coordinator: Who this coordinator is to its workers; None may only ask who they are.
    """

    def __init__(
        self,
        address: str,
        encode: Callable[[Plan], Any],
        decode: Callable[[Any], Answer],
        credentials: Credentials | None,
        *,
        server_name: str = "",
        coordinator: Coordinator | None = None,
    ) -> None:
        self.address = address
        self._metadata = coordinator.metadata if coordinator is not None else ()
        self._encode = encode
        self._decode = decode
        self._channel = open_channel(
            address,
            max_message_bytes=MAX_WORKER_MESSAGE_BYTES,
            credentials=credentials,
            server_name=server_name,
        )
        # Bounded in fact: one step per batch, one warm-up, and closes with the next of them.
        self._plans: asyncio.Queue[Plan] = asyncio.Queue()
        self._failure: MineDraftError | None = None
        self._sessions: set[Any] = set()
        """Calls of running sessions."""

    async def close(self, why: MineDraftError | None = None) -> None:
        """Close the channel; a running session ends.

        Args:
            why: What the session's reader is told; None: that it was ended.
        """
        self._failure = self._failure or why
        # A closed channel does not end a stream that is read by `async for`: grpc only knows of
        # calls that are some task's own coroutine.
        for call in self._sessions:
            call.cancel()
        await self._channel.close()

    def send(self, plan: Plan) -> None:
        """Queue a plan for the session."""
        self._plans.put_nowait(plan)

    async def _call(self, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s + 1.0):  # grpc's own deadline comes first
                answer = await method(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as err:
            raise from_rpc_error(err) from None
        except TimeoutError:
            raise WorkerUnavailableError(f"{self.address}: no answer in {timeout_s} s") from None
        except grpc.aio.UsageError:  # the session ended and closed the channel before the call
            raise WorkerUnavailableError(f"{self.address}: the connection was closed") from None
        except asyncio.CancelledError:  # grpc says so too when the channel is closed
            raise self._cancelled() from None
        return readable(answer, f"{self.address}: the answer to {type(request).__name__}")

    async def _handshake(
        self, role: str, method: Callable[..., Any], request: Any, timeout_s: float
    ) -> Any:
        try:
            return await self._call(method, request, timeout_s)
        except UnknownMethodError:
            raise IncompatibleWorkerError(
                f"{self.address} is not a {role}: another service answers there"
            ) from None

    @asynccontextmanager
    async def _session(self, call: Any, timeout_s: float) -> AsyncIterator[AsyncIterator[Answer]]:
        """Open a session: the worker has forgotten its rows; plans given to `send` go out.

        Yields:
            The answers. Their end is always an error.

        Raises:
            WorkerHeldError: it serves another coordinator.
            MineDraftError: the worker ended the session with an error.
            WorkerUnavailableError: the connection broke, or the worker ended it without one.
        """
        writer: asyncio.Task[None] | None = None
        self._sessions.add(call)
        try:
            await self._opened(call, timeout_s)
            writer = asyncio.create_task(self._write(call), name=f"session.write {self.address}")
            yield self._answers(call)
        except grpc.aio.AioRpcError as err:
            raise from_rpc_error(err) from None
        finally:
            call.cancel()  # grpcio does not cancel calls that are merely forgotten
            self._sessions.discard(call)
            if writer is not None:
                writer.cancel()

    async def _opened(self, call: Any, timeout_s: float) -> None:
        """Wait until the worker has begun the session."""
        try:
            async with asyncio.timeout(timeout_s):
                if not set(BEGUN) <= set(await call.initial_metadata() or ()):
                    await call.read()  # raises what it was refused with
                    raise WorkerUnavailableError(f"{self.address} opened no session")
        except TimeoutError:
            raise WorkerUnavailableError(
                f"{self.address}: no session within {timeout_s} s"
            ) from None
        except asyncio.CancelledError:
            raise self._cancelled() from None

    def _cancelled(self) -> BaseException:
        """Tell what a CancelledError from grpc means: the end of this task, or of the call."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return asyncio.CancelledError()
        # The channel or the call was closed from this side. It must not pass for a cancelled task:
        # a task group would take that for a quiet end.
        return self._failure or WorkerUnavailableError(f"{self.address}: the connection was closed")

    async def _answers(self, call: Any) -> AsyncIterator[Answer]:
        try:
            async for message in call:
                yield self._decode(readable(message, f"{self.address}: a message of the session"))
        except asyncio.CancelledError:
            raise self._cancelled() from None
        if not call.cancelled():
            code, text = await call.code(), await call.details()
            if code is not grpc.StatusCode.OK:
                raise WorkerUnavailableError(f"{self.address}: {code.name}: {text}")
        raise WorkerUnavailableError(f"{self.address} ended the session")

    async def _write(self, call: Any) -> None:
        try:
            while True:
                await call.write(self._encode(await self._plans.get()))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the call is over; the reader sees why
        except Exception as err:
            log.exception("session.write_failed", address=self.address)
            self._failure = StateError(f"{self.address}: a plan cannot be sent: {err}")
            call.cancel()


def _transports(info: Any) -> tuple[str, ...]:
    """Return the transports of a worker that this version knows, each once, in its order."""
    return tuple(dict.fromkeys(_NAMES[n] for n in info.transports if n in _NAMES))


def _description(formed: Any) -> str:
    """Return the worker's description of a link."""
    text = str(formed.description)[:_MAX_DESCRIPTION_CHARS]
    return text if text.isprintable() else ascii(text)


class VerifierConnection(_Connection[VerifyPlan, "VerifyResult | StepBegun | LinkLost"]):
    """One connection to a verifier."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        *,
        coordinator: Coordinator | None = None,
    ) -> None:
        super().__init__(
            address,
            plan_codec.verify_plan_to_proto,
            answer_codec.verify_answer_from_proto,
            credentials,
            coordinator=coordinator,
        )
        self._stub = verifier_pb2_grpc.VerifierStub(self._channel)

    async def get_info(self, timeout_s: float) -> WorkerInfo:
        """Handshake.

        Raises:
            IncompatibleWorkerError: something else answers there.
        """
        request = verifier_pb2.VerifierGetInfoRequest()
        answer = await self._handshake("verifier", self._stub.GetInfo, request, timeout_s)
        return WorkerInfo(
            identity=plan_codec.identity_from_proto(answer.identity),
            model=plan_codec.model_info_from_proto(answer.model),
            transports=_transports(answer),
            acceptance=answer.acceptance,
            link_address=answer.link_address,
        )

    async def form_link(self, spec: LinkSpec) -> str:
        """Order this end of a link; returns its description."""
        timeout_s = spec.timeout_s + 1.0
        request = link_spec_to_proto(spec)
        return _description(await self._call(self._stub.FormLink, request, timeout_s))

    def session(
        self, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[VerifyResult | StepBegun | LinkLost]]:
        """Open the session; see `_session`."""
        return self._session(self._stub.Session(metadata=self._metadata), timeout_s)


class DrafterConnection(_Connection[DraftPlan, "DraftResult | LinkLost | WorkerUsage"]):
    """One connection to a drafter."""

    def __init__(
        self,
        address: str,
        credentials: Credentials | None = None,
        *,
        server_name: str = "",
        coordinator: Coordinator | None = None,
    ) -> None:
        super().__init__(
            address,
            plan_codec.draft_plan_to_proto,
            answer_codec.draft_answer_from_proto,
            credentials,
            server_name=server_name,
            coordinator=coordinator,
        )
        self._stub = drafter_pb2_grpc.DrafterStub(self._channel)

    async def get_info(self, timeout_s: float) -> WorkerInfo:
        """Handshake.

        Raises:
            IncompatibleWorkerError: something else answers there.
        """
        request = drafter_pb2.DrafterGetInfoRequest()
        answer = await self._handshake("drafter", self._stub.GetInfo, request, timeout_s)
        return WorkerInfo(
            identity=plan_codec.identity_from_proto(answer.identity),
            model=plan_codec.model_info_from_proto(answer.model),
            transports=_transports(answer),
        )

    async def form_link(self, spec: LinkSpec) -> str:
        """Order this end of a link; returns its description."""
        timeout_s = spec.timeout_s + 1.0
        request = drafter_pb2.DrafterFormLinkRequest(link=link_spec_to_proto(spec))
        return _description(await self._call(self._stub.FormLink, request, timeout_s))

    async def drop_link(self, epoch: int, timeout_s: float) -> None:
        """Tell the drafter to drop a link."""
        request = drafter_pb2.DrafterDropLinkRequest(epoch=epoch)
        await self._call(self._stub.DropLink, request, timeout_s)

    async def load_model(
        self, model: str, tokenizer_fingerprint: str, timeout_s: float
    ) -> ModelInfo:
        """Tell the drafter to load another model."""
        request = drafter_pb2.DrafterLoadModelRequest(
            model=model, tokenizer_fingerprint=tokenizer_fingerprint
        )
        answer = await self._call(self._stub.LoadModel, request, timeout_s)
        return plan_codec.model_info_from_proto(answer.model)

    def session(
        self, timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[DraftResult | LinkLost | WorkerUsage]]:
        """Open the session; see `_session`."""
        return self._session(self._stub.Session(metadata=self._metadata), timeout_s)
