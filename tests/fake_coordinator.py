"""A coordinator double on a real aio server: scripted answers, recorded requests, no workers."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc

from minedraft.admin import (
    BatchStatus,
    Counters,
    ServerInfo,
    Span,
    Status,
    SwapOrder,
    SwapResult,
    SwapStatus,
    TargetInfo,
    WorkerStatus,
)
from minedraft.api import (
    Delta,
    Event,
    Finished,
    GenerationRequest,
    RequestTiming,
    SpeculationStats,
    Started,
    TokenizeOrder,
    TokenizerInfo,
    Usage,
)
from minedraft.errors import MineDraftError
from minedraft.plans import StepTiming, WorkerIdentity
from minedraft.transport import admin_codec, public_codec, text_codec
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES, server_options
from minedraft.transport.status import ErrorInterceptor
from minedraft.types import NO_DEFAULTS, FinishReason, Mode, ModelInfo
from minedraft.v1 import admin_pb2, admin_pb2_grpc, generation_pb2, generation_pb2_grpc

IDENTITY = WorkerIdentity("fake", 1, 1, 1, "0.0")
MODEL = ModelInfo("fake-target", 1000, 4096, "f" * 64, "float32", (0,), 16, 64)
VERIFY_NS, DRAFT_NS = 10_000_000, 8_000_000


class FakeCoordinator(generation_pb2_grpc.GenerationServicer, admin_pb2_grpc.AdminServicer):
    """Answers every prompt with ids that depend on the prompt alone; words are `w<id> `."""

    def __init__(self) -> None:
        self.swaps: list[SwapOrder] = []
        self.address = ""
        self.requests: list[GenerationRequest] = []
        self.modes: list[Mode] = []
        self.mode = Mode(2, 8, 4)
        self.spans: list[Span] = []
        self.drafter_kind = "synthetic"
        self.takes_debug_requests = True
        self.has_chat_template = True
        self.chat_template = "{{ messages }}"
        self.sampling_defaults = NO_DEFAULTS
        self.orders: list[TokenizeOrder] = []
        self.cancelled = asyncio.Event()
        self.gate: asyncio.Event | None = None  # if set: every answer stops after one token
        self.error: MineDraftError | None = None
        self.info_error: MineDraftError | None = None  # of GetModelInfo: no verifier, say
        self.events: Callable[[GenerationRequest], list[Event]] | None = None
        self.num_live = 0
        self.clock_ns = 1_000_000_000
        self.says = ""  # if set: every name and error that it and its workers tell
        self.num_log_lines_dropped = 0

    async def _events(self, request: GenerationRequest) -> AsyncIterator[Event]:
        if self.events is not None:
            for event in self.events(request):
                yield event
            return
        seed = request.sampling.seed
        request_id = request.request_id or f"r{len(self.requests)}"
        yield Started(request_id, 7 if seed is None else seed, 3)
        start = zlib.crc32(repr((request.text, request.token_ids, request.messages)).encode())
        limit = request.sampling.max_tokens or 4
        k = self.mode.num_draft_tokens
        for index in range(request.sampling.n):
            done, num_steps = 0, 0
            while done < limit:
                num = min(limit - done, 1 + k // 2)
                ids = tuple((start + index + done + i) % 1000 for i in range(num))
                done += num
                num_steps += 1
                self._record_step(num)
                yield Delta(index, ids, "".join(f"w{i} " for i in ids))
                if self.gate is not None:
                    await self.gate.wait()
            stats = SpeculationStats(
                num_drafts=num_steps if k else 0,
                num_draft_tokens=num_steps * k,
                num_accepted_tokens=num_steps * (k // 2),
                num_steps=num_steps,
            )
            yield Finished(
                index,
                FinishReason.LENGTH,
                usage=Usage(3, limit),
                speculation=stats,
                timing=RequestTiming(1, 2, 3),
            )

    def _record_step(self, num_tokens: int) -> None:
        """Pretend a full batch made a step: psd overlaps draft and verify, sd does not."""
        mode = self.mode
        batch = len(self.spans) // 2 % mode.num_batches
        verify = StepTiming(self.clock_ns, VERIFY_NS, bubble_ns=1_000_000)
        draft = StepTiming(self.clock_ns, DRAFT_NS)
        rows = mode.max_batch_size
        step_id = len(self.spans) // 2 + 1
        if mode.num_draft_tokens:
            self.spans.append(Span("draft", batch, step_id, draft, rows, rows * 2))
            self.clock_ns += 0 if mode.num_batches > 1 else DRAFT_NS
        verify = replace(verify, started_unix_ns=self.clock_ns)
        self.spans.append(Span("verify", batch, step_id, verify, rows, rows * num_tokens))
        self.clock_ns += VERIFY_NS + 1_000_000

    def _model(self, name: str) -> ModelInfo:
        return replace(MODEL, name=self.says or name)

    async def Generate(self, request, context):
        value = public_codec.request_from_proto(request)
        self.requests.append(value)
        if self.error is not None:
            raise self.error
        self.num_live += 1
        try:
            async for event in self._events(value):
                yield public_codec.event_to_proto(event)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.num_live -= 1

    async def Abort(self, request, context):
        return generation_pb2.AbortResponse(num_aborted=len(request.request_ids))

    async def GetModelInfo(self, request, context):
        if self.info_error is not None:
            raise self.info_error
        return public_codec.target_info_to_proto(
            TargetInfo(self._model("fake-target"), self.has_chat_template, self.sampling_defaults)
        )

    async def GetServerInfo(self, request, context):
        return public_codec.server_info_to_proto(
            ServerInfo(IDENTITY, self.mode, 64, "coupled", self.takes_debug_requests)
        )

    async def Tokenize(self, request, context):
        """One id per character; a chat has its contents, each after its role's initial."""
        order = text_codec.order_from_proto(request)
        self.orders.append(order)
        if self.error is not None:
            raise self.error
        chat = "".join(f"{m.role[:1]}{m.content}" for m in order.messages or ())
        ids = [ord(char) % 1000 for char in (chat if order.text is None else order.text)]
        adds = order.text is not None and order.add_special_tokens
        return generation_pb2.TokenizeResponse(token_ids=[0, *ids] if adds else ids)

    async def Detokenize(self, request, context):
        """A word per id."""
        if self.error is not None:
            raise self.error
        ids = [i for i in request.token_ids if i or not request.skip_special_tokens]
        return generation_pb2.DetokenizeResponse(text="".join(f"w{i} " for i in ids))

    async def GetTokenizerInfo(self, request, context):
        info = TokenizerInfo(1000, self.chat_template, {"eos_token": "</s>"})
        return text_codec.tokenizer_info_to_proto(info)

    async def GetStatus(self, request, context):
        says = self.says
        drafter = replace(self._model("fake-drafter"), drafter_kind=says or self.drafter_kind)
        status = Status(
            identity=IDENTITY,
            mode=self.mode,
            num_running=self.num_live,
            num_blocks=64,
            workers=(
                WorkerStatus(
                    says or "verifier", says or "h:2", True, IDENTITY, MODEL, last_error=says
                ),
                WorkerStatus("drafter", "h:1", True, IDENTITY, drafter, 1, link_description=says),
            ),
            batches=(BatchStatus(0, {says: 3}),) if says else (),
            counters=Counters(len(self.requests), {says: 3} if says else {}),
            swaps=SwapStatus(num_failed=1, last_error=says) if says else SwapStatus(),
            num_log_lines_dropped=self.num_log_lines_dropped,
        )
        return admin_codec.status_to_proto(status)

    async def GetMetrics(self, request, context):
        text = f"# TYPE minedraft_up gauge\nminedraft_up 1.0\nfake_requests {len(self.requests)}\n"
        return admin_pb2.GetMetricsResponse(text=text)

    async def SetMode(self, request, context):
        if self.error is not None:
            raise self.error
        mode = admin_codec.mode_from_proto(request)
        self.mode = replace(mode, policy=mode.policy or self.mode.policy)  # empty: it stays
        self.modes.append(self.mode)
        return admin_pb2.SetModeResponse()

    async def SwapDrafter(self, request, context):
        order = admin_codec.swap_order_from_proto(request)
        self.swaps.append(order)
        model = ModelInfo(self.says or order.model or order.address, 300, 512, "f", "float32")
        result = SwapResult(2, model, 1_500_000_000, 250_000_000)
        return admin_codec.swap_result_to_proto(result)

    async def GetTimeline(self, request, context):
        spans = [span for span in self.spans if span.start_ns > request.since_unix_ns]
        spans = spans[-request.max_spans :] if request.max_spans else spans
        return admin_pb2.GetTimelineResponse(spans=map(admin_codec.span_to_proto, spans))


@asynccontextmanager
async def serve(fake: FakeCoordinator) -> AsyncIterator[FakeCoordinator]:
    """Serve the double on a free port; `fake.address` says where."""
    server = grpc.aio.server(
        options=server_options(MAX_CLIENT_MESSAGE_BYTES), interceptors=[ErrorInterceptor()]
    )
    generation_pb2_grpc.add_GenerationServicer_to_server(fake, server)
    admin_pb2_grpc.add_AdminServicer_to_server(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield fake
    finally:
        await server.stop(None)
