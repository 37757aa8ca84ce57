"""The workers' gRPC servicers: protobuf outside, a handler that speaks domain values inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from minedraft.errors import InvalidRequestError
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.plans import (
    DraftPlan,
    DraftResult,
    LinkLost,
    StepBegun,
    VerifyPlan,
    VerifyResult,
    WorkerUsage,
)
from minedraft.transport import answer_codec, plan_codec, usage_codec
from minedraft.transport.plan_session import PlanSessions
from minedraft.v1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    link_pb2_grpc,
    types_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Coroutine

    import grpc

    from minedraft.packets.packet import DraftPacket
    from minedraft.plans import WorkerInfo
    from minedraft.transport.plan_queue import Arrived
    from minedraft.types import ModelInfo

VERIFIER_SERVICE = "minedraft.v1.Verifier"
DRAFTER_SERVICE = "minedraft.v1.Drafter"

_TO_TRANSPORT = {
    types_pb2.LINK_TRANSPORT_LOCAL: Transport.LOCAL,
    types_pb2.LINK_TRANSPORT_GLOO: Transport.GLOO,
    types_pb2.LINK_TRANSPORT_GRPC: Transport.GRPC,
    types_pb2.LINK_TRANSPORT_NCCL: Transport.NCCL,
}
FROM_TRANSPORT = {transport: number for number, transport in _TO_TRANSPORT.items()}


class Handler(Protocol):
    """The methods of every worker."""

    def info(self) -> WorkerInfo:
        """Who and what it is."""

    async def form_link(self, spec: LinkSpec) -> str:
        """Form this end of a link; return its description."""

    async def begin_session(self) -> None:
        """Forget all rows."""


class VerifierHandler(Handler, Protocol):
    """The methods of a verifier."""

    def drafts(self, plan: VerifyPlan) -> Coroutine[Any, Any, DraftPacket | None] | None:
        """What waits for a step's drafts, bounded, from now on; None: it has none."""

    async def start_plan(
        self, plan: VerifyPlan, arrived_ns: int, packet: DraftPacket | None, ready_ns: int
    ) -> asyncio.Future[VerifyResult | StepBegun | LinkLost | None]:
        """Start one step.

        Args:
            plan: Which.
            arrived_ns: When it arrived (perf_counter).
            packet: Its drafts; None: it has none, or they did not come.
            ready_ns: When the wait for them was over; `arrived_ns` if there was none.

        Returns:
            Its result; None if the plan has no rows.
        """


class DrafterHandler(Handler, Protocol):
    """The methods of a drafter."""

    async def drop_link(self, epoch: int) -> None:
        """Drop a link, and its model if nothing else uses it."""

    async def load_model(self, model: str, tokenizer_fingerprint: str) -> ModelInfo:
        """Load another model for links that form from now on."""

    async def start_plan(
        self, plan: DraftPlan, arrived_ns: int
    ) -> asyncio.Future[DraftResult | LinkLost | WorkerUsage | None]:
        """Start one step; None if there is nothing to report."""


def link_spec_from_proto(message: types_pb2.FormLinkRequest) -> LinkSpec:
    """Message -> LinkSpec.

    Raises:
        InvalidRequestError: a field is out of range, or the transport is unknown.
    """
    transport = _TO_TRANSPORT.get(message.transport)
    if transport is None:
        raise InvalidRequestError(
            f"transport={message.transport}: this version knows no such number", field="transport"
        )
    return LinkSpec(
        epoch=message.epoch,
        name=message.name,
        transport=transport,
        max_rows=message.max_rows,
        max_draft_tokens=message.max_draft_tokens,
        q_width=message.q_width,
        verifier_address=message.verifier_address,
        timeout_s=message.timeout_s,
    )


def link_spec_to_proto(spec: LinkSpec) -> types_pb2.FormLinkRequest:
    """LinkSpec -> message."""
    return types_pb2.FormLinkRequest(
        epoch=spec.epoch,
        name=spec.name,
        transport=FROM_TRANSPORT[spec.transport],
        max_rows=spec.max_rows,
        max_draft_tokens=spec.max_draft_tokens,
        q_width=spec.q_width,
        verifier_address=spec.verifier_address,
        timeout_s=spec.timeout_s,
    )


def add_token_link(servicer: link_pb2_grpc.TokenLinkServicer, server: grpc.aio.Server) -> None:
    """Add a TokenLink servicer to a server."""
    link_pb2_grpc.add_TokenLinkServicer_to_server(servicer, server)


def _transports(info: WorkerInfo) -> list[types_pb2.LinkTransport]:
    return [FROM_TRANSPORT[Transport(name)] for name in info.transports]


class VerifierServicer(verifier_pb2_grpc.VerifierServicer):
    """minedraft.v1.Verifier over a `VerifierHandler`."""

    def __init__(self, handler: VerifierHandler) -> None:
        self._handler = handler
        self.sessions: PlanSessions[
            VerifyPlan, DraftPacket, VerifyResult | StepBegun | LinkLost
        ] = PlanSessions(
            role="verifier",
            decode=plan_codec.verify_plan_from_proto,
            encode=_encode_verify_answer,
            begin=handler.begin_session,
            start=self._start,
            # A step needs what the step before it of the same batch leaves behind.
            lane=lambda plan: plan.batch if plan.rows else None,
            inputs=handler.drafts,
            begun=lambda plan: StepBegun(plan.step_id, plan.batch) if plan.rows else None,
        )

    def _start(
        self, arrived: Arrived[VerifyPlan, DraftPacket]
    ) -> Awaitable[asyncio.Future[VerifyResult | StepBegun | LinkLost | None]]:
        return self._handler.start_plan(
            arrived.plan, arrived.arrived_ns, arrived.inputs, arrived.ready_ns
        )

    def register(self, server: grpc.aio.Server) -> str:
        """Add it to a server; returns its full name."""
        verifier_pb2_grpc.add_VerifierServicer_to_server(self, server)
        return VERIFIER_SERVICE

    async def GetInfo(  # noqa: N802 gRPC's name
        self, _request: verifier_pb2.VerifierGetInfoRequest, _context: Any
    ) -> verifier_pb2.VerifierGetInfoResponse:
        """Who and what it is."""
        info = self._handler.info()
        return verifier_pb2.VerifierGetInfoResponse(
            identity=plan_codec.identity_to_proto(info.identity),
            model=plan_codec.model_info_to_proto(info.model),
            transports=_transports(info),
            acceptance=info.acceptance,
            link_address=info.link_address,
        )

    async def FormLink(  # noqa: N802 gRPC's name
        self, request: types_pb2.FormLinkRequest, context: Any
    ) -> types_pb2.FormLinkResponse:
        """Form this end of a link."""
        self.sessions.check_caller(context)
        description = await self._handler.form_link(link_spec_from_proto(request))
        return types_pb2.FormLinkResponse(description=description)

    async def Session(  # noqa: N802 gRPC's name
        self, requests: AsyncIterator[verifier_pb2.VerifierSessionRequest], context: Any
    ) -> None:
        """Plans in, results out."""
        await self.sessions.serve(requests, context)


class DrafterServicer(drafter_pb2_grpc.DrafterServicer):
    """minedraft.v1.Drafter over a `DrafterHandler`."""

    def __init__(self, handler: DrafterHandler) -> None:
        self._handler = handler
        self.sessions: PlanSessions[DraftPlan, None, DraftResult | LinkLost | WorkerUsage] = (
            PlanSessions(
                role="drafter",
                decode=plan_codec.draft_plan_from_proto,
                encode=_encode_draft_answer,
                begin=handler.begin_session,
                start=lambda arrived: handler.start_plan(arrived.plan, arrived.arrived_ns),
            )
        )

    def register(self, server: grpc.aio.Server) -> str:
        """Add it to a server; returns its full name."""
        drafter_pb2_grpc.add_DrafterServicer_to_server(self, server)
        return DRAFTER_SERVICE

    async def GetInfo(  # noqa: N802 gRPC's name
        self, _request: drafter_pb2.DrafterGetInfoRequest, _context: Any
    ) -> drafter_pb2.DrafterGetInfoResponse:
        """Who and what it is."""
        info = self._handler.info()
        return drafter_pb2.DrafterGetInfoResponse(
            identity=plan_codec.identity_to_proto(info.identity),
            model=plan_codec.model_info_to_proto(info.model),
            transports=_transports(info),
        )

    async def FormLink(  # noqa: N802 gRPC's name
        self, request: drafter_pb2.DrafterFormLinkRequest, context: Any
    ) -> drafter_pb2.DrafterFormLinkResponse:
        """Form this end of a link."""
        self.sessions.check_caller(context)
        description = await self._handler.form_link(link_spec_from_proto(request.link))
        return drafter_pb2.DrafterFormLinkResponse(description=description)

    async def DropLink(  # noqa: N802 gRPC's name
        self, request: drafter_pb2.DrafterDropLinkRequest, context: Any
    ) -> drafter_pb2.DrafterDropLinkResponse:
        """Drop a link."""
        self.sessions.check_caller(context)
        await self._handler.drop_link(request.epoch)
        return drafter_pb2.DrafterDropLinkResponse()

    async def LoadModel(  # noqa: N802 gRPC's name
        self, request: drafter_pb2.DrafterLoadModelRequest, context: Any
    ) -> drafter_pb2.DrafterLoadModelResponse:
        """Load another model beside the one in use."""
        self.sessions.check_caller(context)
        info = await self._handler.load_model(request.model, request.tokenizer_fingerprint)
        return drafter_pb2.DrafterLoadModelResponse(model=plan_codec.model_info_to_proto(info))

    async def Session(  # noqa: N802 gRPC's name
        self, requests: AsyncIterator[drafter_pb2.DrafterSessionRequest], context: Any
    ) -> None:
        """Plans in, results out."""
        await self.sessions.serve(requests, context)


def _encode_verify_answer(
    answer: VerifyResult | StepBegun | LinkLost,
) -> verifier_pb2.VerifierSessionResponse:
    if isinstance(answer, LinkLost):
        return answer_codec.link_lost_to_verifier_answer(answer)
    if isinstance(answer, StepBegun):
        return answer_codec.step_begun_to_proto(answer)
    return answer_codec.verify_result_to_proto(answer)


def _encode_draft_answer(
    answer: DraftResult | LinkLost | WorkerUsage,
) -> drafter_pb2.DrafterSessionResponse:
    if isinstance(answer, LinkLost):
        return answer_codec.link_lost_to_drafter_answer(answer)
    if isinstance(answer, WorkerUsage):
        return usage_codec.usage_to_drafter_answer(answer)
    return answer_codec.draft_result_to_proto(answer)
