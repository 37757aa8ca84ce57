from __future__ import annotations

from types import SimpleNamespace

import pytest

from minedraft.admin import ServerInfo, Span, Status, SwapOrder, SwapResult, TargetInfo
from minedraft.api import (
    Delta,
    Finished,
    GenerationRequest,
    Started,
    TokenizeOrder,
    TokenizerInfo,
)
from minedraft.errors import InvalidRequestError, QueueFullError
from minedraft.plans import StepTiming, WorkerIdentity
from minedraft.security.caller import ANYBODY
from minedraft.transport import admin_codec, public_codec, text_codec
from minedraft.transport.public_service import AdminServicer, GenerationServicer
from minedraft.types import FinishReason, Mode, ModelInfo
from minedraft.v1 import admin_pb2, generation_pb2

MODEL = ModelInfo("m", 50, 100, "f", "float32")
IDENTITY = WorkerIdentity("w", 1, 2, 3, "v")
EVENTS = [Started("r", 5, 3), Delta(0, (1, 2), "ab"), Finished(0, FinishReason.STOP)]
REQUEST = GenerationRequest(token_ids=(1, 2, 3))


class Handler:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list = []
        self.callers: list = []
        self.was_left = False
        self.error: Exception | None = None

    async def generate(self, request, caller):
        self.asked.append(request)
        self.callers.append(caller)
        try:
            for event in EVENTS:
                if self.error is not None:
                    raise self.error
                yield event
        finally:
            self.was_left = True

    def abort(self, request_ids, resume_tokens, caller):
        self.asked.append((request_ids, resume_tokens))
        self.callers.append(caller)
        return 2

    def max_model_len(self):
        return 100

    def target_info(self):
        return TargetInfo(MODEL, has_chat_template=True)

    def server_info(self):
        return ServerInfo(IDENTITY, Mode(2, 4, 4), 9, "coupled")

    async def tokenize(self, order):
        self.asked.append(order)
        return (1, 2, 3)

    async def detokenize(self, token_ids, *, skip_special_tokens):
        self.asked.append((token_ids, skip_special_tokens))
        return "text"

    def tokenizer_info(self):
        return TokenizerInfo(50, "{{ x }}", {"eos_token": "</s>"})

    async def status(self):
        return Status(IDENTITY, Mode(2, 4, 4), num_waiting=3)

    def set_mode(self, mode):
        self.asked.append(mode)

    async def swap_drafter(self, order, timeout_s):
        self.asked.append(order)
        return SwapResult(4, MODEL, 20, 10)

    async def metrics(self):
        return "minedraft_up 1\n"

    def spans(self, max_spans, since_unix_ns):
        self.asked.append((max_spans, since_unix_ns))
        return (Span("draft", 1, 9, StepTiming(total_ns=5), 2, 8),)


@pytest.fixture
def handler() -> Handler:
    return Handler()


def generate(handler, message=None):
    message = message or public_codec.request_to_proto(REQUEST)
    return GenerationServicer(handler).Generate(message, None)


async def test_events_are_streamed_in_order(handler):
    events = [public_codec.event_from_proto(m) async for m in generate(handler)]
    assert events == EVENTS
    assert handler.asked == [REQUEST]
    assert handler.was_left


async def test_a_client_that_leaves_makes_the_handler_leave_at_once(handler):
    stream = generate(handler)
    await anext(stream)
    assert not handler.was_left
    await stream.aclose()
    assert handler.was_left


async def test_an_error_of_the_handler_passes_bare(handler):
    handler.error = QueueFullError("full")
    with pytest.raises(QueueFullError, match="full"):
        await anext(generate(handler))
    assert handler.was_left


async def test_a_message_that_is_no_request_never_reaches_the_handler(handler):
    with pytest.raises(InvalidRequestError):
        await anext(generate(handler, generation_pb2.GenerateRequest()))
    assert handler.asked == []


async def test_the_other_calls_of_callers(handler):
    servicer = GenerationServicer(handler)
    asked = generation_pb2.AbortRequest(request_ids=["a", "b"], resume_tokens=[b"x", b""])
    answer = await servicer.Abort(asked, None)
    assert answer.num_aborted == 2
    assert handler.asked == [(("a", "b"), (b"x", b""))]
    assert handler.callers == [ANYBODY]
    target = await servicer.GetModelInfo(generation_pb2.GetModelInfoRequest(), None)
    assert public_codec.target_info_from_proto(target) == handler.target_info()
    server = await servicer.GetServerInfo(generation_pb2.GetServerInfoRequest(), None)
    assert public_codec.server_info_from_proto(server) == handler.server_info()


async def test_the_calls_about_text(handler):
    servicer = GenerationServicer(handler)
    order = TokenizeOrder(text="hi", add_special_tokens=False)
    ids = generation_pb2.DetokenizeRequest(token_ids=[4, 5], skip_special_tokens=True)
    for as_sent in (lambda message: message, lambda message: message.SerializeToString()):
        asked = as_sent(text_codec.order_to_proto(order))
        assert (await servicer.Tokenize(asked, None)).token_ids == [1, 2, 3]
        assert (await servicer.Detokenize(as_sent(ids), None)).text == "text"
    assert handler.asked == [order, ((4, 5), True)] * 2
    info = await servicer.GetTokenizerInfo(generation_pb2.GetTokenizerInfoRequest(), None)
    assert text_codec.tokenizer_info_from_proto(info) == handler.tokenizer_info()


@pytest.mark.parametrize("name", ["Tokenize", "Detokenize"])
async def test_bytes_that_are_no_message_are_refused_by_name(handler, name):
    with pytest.raises(InvalidRequestError, match=f"no {name}Request"):
        await getattr(GenerationServicer(handler), name)(b"\x0a\x05", None)


async def test_the_calls_of_operators(handler):
    servicer = AdminServicer(handler)
    status = await servicer.GetStatus(admin_pb2.GetStatusRequest(), None)
    assert admin_codec.status_from_proto(status) == await handler.status()
    metrics = await servicer.GetMetrics(admin_pb2.GetMetricsRequest(), None)
    assert metrics.text == "minedraft_up 1\n"
    await servicer.SetMode(admin_codec.mode_to_proto(Mode(1, 2, 3)), None)
    order = SwapOrder(model="new")
    waits = SimpleNamespace(time_remaining=lambda: 9.0)
    swapped = await servicer.SwapDrafter(admin_codec.swap_order_to_proto(order), waits)
    assert admin_codec.swap_result_from_proto(swapped) == SwapResult(4, MODEL, 20, 10)
    assert handler.asked == [Mode(1, 2, 3), order]


@pytest.mark.parametrize(("asked", "wanted"), [(7, 7), (0, 20_000), (10**6, 20_000)])
async def test_a_timeline_is_bounded(handler, asked, wanted):
    request = admin_pb2.GetTimelineRequest(max_spans=asked, since_unix_ns=5)
    answer = await AdminServicer(handler).GetTimeline(request, None)
    assert handler.asked == [(wanted, 5)]
    (span,) = map(admin_codec.span_from_proto, answer.spans)
    assert (span.lane, span.step_id, span.num_tokens) == ("draft", 9, 8)
