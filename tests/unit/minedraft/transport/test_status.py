from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from structlog.testing import capture_logs

from minedraft import errors
from minedraft.transport import status
from minedraft.transport.channel import MAX_CLIENT_MESSAGE_BYTES, open_channel, server_options

CLASSES = sorted(status.BY_NAME.values(), key=lambda cls: cls.__name__)


class Servicer:
    """All four kinds of RPC; each raises `error` at the end."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.items = 1
        self.ended = asyncio.Event()

    def _end(self) -> bytes:
        if self.error is not None:
            raise self.error
        return b"ok"

    async def UnaryUnary(self, request, context):
        return self._end()

    async def Flood(self, request, context):
        return b"x" * 1001

    async def UnaryStream(self, request, context):
        try:
            for _ in range(self.items):
                yield b"item"
            self._end()
        finally:
            self.ended.set()

    async def WritesItself(self, request, context):
        await context.write(b"item")
        self._end()

    async def Refuses(self, request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "gone")

    async def StreamUnary(self, requests, context):
        async for _ in requests:
            pass
        return self._end()

    async def StreamStream(self, requests, context):
        async for request in requests:
            yield request
        self._end()


@asynccontextmanager
async def served(*, server_limit=1000, channel_limit=MAX_CLIENT_MESSAGE_BYTES):
    servicer = Servicer()
    handlers = {
        "Flood": grpc.unary_unary_rpc_method_handler(servicer.Flood),
        "UnaryUnary": grpc.unary_unary_rpc_method_handler(servicer.UnaryUnary),
        "UnaryStream": grpc.unary_stream_rpc_method_handler(servicer.UnaryStream),
        "WritesItself": grpc.unary_stream_rpc_method_handler(servicer.WritesItself),
        "Refuses": grpc.unary_unary_rpc_method_handler(servicer.Refuses),
        "StreamUnary": grpc.stream_unary_rpc_method_handler(servicer.StreamUnary),
        "StreamStream": grpc.stream_stream_rpc_method_handler(servicer.StreamStream),
    }
    server = grpc.aio.server(
        options=server_options(server_limit), interceptors=[status.ErrorInterceptor()]
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.S", handlers),))
    port = server.add_insecure_port("localhost:0")
    await server.start()
    channel = open_channel(f"localhost:{port}", max_message_bytes=channel_limit)
    try:
        yield servicer, channel
    finally:
        await channel.close()
        await server.stop(0)


KINDS = ["UnaryUnary", "UnaryStream", "WritesItself", "StreamUnary", "StreamStream"]


async def requests():
    yield b"a"
    yield b"b"


async def call(channel, kind, request=b"x") -> list[bytes]:
    """Call one RPC to its end."""
    path = f"/test.S/{kind}"
    if kind not in {"UnaryStream", "WritesItself", "StreamUnary", "StreamStream"}:
        return [await channel.unary_unary(path)(request, timeout=10)]
    if kind == "StreamUnary":
        return [await channel.stream_unary(path)(requests(), timeout=10)]
    if kind == "StreamStream":
        return [item async for item in channel.stream_stream(path)(requests(), timeout=10)]
    return [item async for item in channel.unary_stream(path)(request, timeout=10)]


async def failed(channel, kind, request=b"x") -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, kind, request)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
async def test_what_goes_well_is_left_alone(kind):
    want = {"UnaryUnary": [b"ok"], "StreamUnary": [b"ok"], "StreamStream": [b"a", b"b"]}
    async with served() as (_servicer, channel):
        assert await call(channel, kind) == want.get(kind, [b"item"])


@pytest.mark.parametrize("kind", KINDS)
async def test_every_class_arrives_as_itself_with_its_text(kind):
    async with served() as (servicer, channel):
        for cls in CLASSES:
            servicer.error = cls(f"sampling.top_p is 7: {cls.__name__} wäre ≠ 0")
            wire = await failed(channel, kind)
            assert wire.code().name == cls.status
            rebuilt = status.from_rpc_error(wire)
            assert type(rebuilt) is cls
            assert str(rebuilt) == str(servicer.error)


def test_the_classes_are_the_tree_of_errors():
    assert {cls.__name__ for cls in CLASSES} == {
        name
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.MineDraftError)
    }


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_has_a_status_that_grpc_knows(cls):
    assert cls.status in grpc.StatusCode.__members__
    info = error_details_pb2.ErrorInfo()
    assert status.to_status(cls("why")).details[0].Unpack(info)
    assert (info.reason, info.domain) == (cls.__name__, "minedraft")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_field_arrives_and_as_a_bad_request_for_other_clients(kind):
    async with served() as (servicer, channel):
        servicer.error = errors.InvalidRequestError("top_p is 7", field="sampling.top_p")
        wire = await failed(channel, kind)
        rebuilt = status.from_rpc_error(wire)
        assert isinstance(rebuilt, errors.InvalidRequestError)
        assert rebuilt.field == "sampling.top_p"
        bad = error_details_pb2.BadRequest()
        assert rpc_status.from_call(wire).details[1].Unpack(bad)
        assert bad.field_violations[0].field == "sampling.top_p"
        assert bad.field_violations[0].description == "top_p is 7"


@pytest.mark.parametrize("cls", [errors.QueueFullError, errors.DrainingError])
async def test_the_delay_of_a_retry_arrives_and_as_retry_info_for_other_clients(cls):
    async with served() as (servicer, channel):
        servicer.error = cls("full")
        servicer.error.retry_after_s = 2.5
        wire = await failed(channel, "UnaryUnary")
        rebuilt = status.from_rpc_error(wire)
        assert isinstance(rebuilt, errors.CapacityError)
        assert rebuilt.retry_after_s == 2.5
        info = error_details_pb2.RetryInfo()
        assert rpc_status.from_call(wire).details[1].Unpack(info)
        assert info.retry_delay == duration_pb2.Duration(seconds=2, nanos=500_000_000)


@pytest.mark.parametrize("letter", ["x", "ü", "语", "😀"])
async def test_a_very_long_text_keeps_its_class_and_field(letter):
    async with served() as (servicer, channel):
        text = f"stop[0] is {letter * 20_000!r}"
        servicer.error = errors.InvalidRequestError(text, field="sampling.stop")
        rebuilt = status.from_rpc_error(await failed(channel, "UnaryUnary"))
        assert isinstance(rebuilt, errors.InvalidRequestError)
        assert rebuilt.field == "sampling.stop"
        assert str(rebuilt).startswith("stop[0] is 'xxx".replace("x", letter))


async def test_a_text_that_is_no_unicode_keeps_its_class():
    async with served() as (servicer, channel):
        servicer.error = errors.InvalidRequestError("stop is '\ud800'", field="sampling.stop")
        rebuilt = status.from_rpc_error(await failed(channel, "UnaryUnary"))
        assert str(rebuilt) == "stop is '?'"
        assert isinstance(rebuilt, errors.InvalidRequestError)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bug_becomes_internal_without_its_text_and_is_logged(kind):
    async with served() as (servicer, channel):
        servicer.error = ValueError("the prompt was: my secret")
        with capture_logs() as logs:
            wire = await failed(channel, kind)
        assert wire.code() is grpc.StatusCode.INTERNAL
        assert wire.details() == "internal error: ValueError"
        assert "secret" not in str(wire.trailing_metadata())
        assert [(entry["event"], entry["error"]) for entry in logs] == [
            ("rpc.failed", "ValueError")
        ]
        assert isinstance(status.from_rpc_error(wire), errors.ProtocolError)


async def test_of_a_group_the_bug_counts_before_our_own_error():
    async with served() as (servicer, channel):
        ours = errors.QueueFullError("full")
        servicer.error = ExceptionGroup("", [ours, ExceptionGroup("", [ours])])
        wire = await failed(channel, "UnaryUnary")
        assert isinstance(status.from_rpc_error(wire), errors.QueueFullError)
        servicer.error = ExceptionGroup("", [ours, ValueError("bug")])
        wire = await failed(channel, "UnaryUnary")
        assert wire.details() == "internal error: ValueError"


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.WorkerUnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineError),
        (grpc.StatusCode.CANCELLED, errors.WorkerUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.InvalidRequestError),
        (grpc.StatusCode.UNIMPLEMENTED, status.UnknownMethodError),
        (grpc.StatusCode.UNKNOWN, errors.ProtocolError),
    ],
)
def test_a_status_that_is_not_ours_becomes_the_nearest_error(code, cls):
    wire = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="why")
    rebuilt = status.from_rpc_error(wire)
    assert type(rebuilt) is cls
    assert str(rebuilt) == f"{code.name}: why"


def test_a_connection_that_broke_by_garbage_is_unavailable():
    text = "Stream removed (Failed parsing HTTP/2 (Frame size 16761276 is larger than ...))"
    unknown = grpc.StatusCode.UNKNOWN
    wire = grpc.aio.AioRpcError(unknown, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)
    assert type(status.from_rpc_error(wire)) is errors.WorkerUnavailableError


@pytest.mark.parametrize("name", ["NoSuchError", "Exception", "", "ConfigError"])
def test_a_peer_cannot_name_a_class_outside_the_tree(name):
    wire = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL,
        grpc.aio.Metadata(),
        grpc.aio.Metadata((status.ERROR_KEY, name)),
        details="why",
    )
    assert type(status.from_rpc_error(wire)) is errors.ProtocolError


@pytest.mark.parametrize("delay", ["soon", "", "nan", "-1"])
def test_a_delay_that_makes_no_sense_is_left_out(delay):
    wire = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.aio.Metadata(),
        grpc.aio.Metadata((status.ERROR_KEY, "QueueFullError"), ("retry-after", delay)),
        details="full",
    )
    rebuilt = status.from_rpc_error(wire)
    assert isinstance(rebuilt, errors.QueueFullError)
    assert rebuilt.retry_after_s == 1.0


def test_the_code_of_the_status_is_the_number_that_grpc_uses():
    made = status.to_status(errors.QueueFullError("full"))
    assert isinstance(made, status_pb2.Status)
    assert made.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


async def test_a_message_over_the_limit_says_so_with_the_number():
    async with served() as (_servicer, channel):
        rebuilt = status.from_rpc_error(await failed(channel, "UnaryUnary", b"x" * 1001))
        assert isinstance(rebuilt, errors.InvalidRequestError)
        assert "1001" in str(rebuilt)
        assert await call(channel, "UnaryUnary") == [b"ok"]


@pytest.mark.parametrize("limits", [(1000, 2000), (2000, 1000)])
async def test_an_answer_over_the_limit_of_either_end_is_the_peers_fault(limits):
    server, client = limits
    async with served(server_limit=server, channel_limit=client) as (_servicer, channel):
        rebuilt = status.from_rpc_error(await failed(channel, "Flood"))
        assert isinstance(rebuilt, errors.ProtocolError)
        assert "1001" in str(rebuilt)


async def test_nobody_there_is_unavailable_and_can_be_retried():
    async with open_channel("localhost:1") as channel:
        rebuilt = status.from_rpc_error(await failed(channel, "UnaryUnary"))
    assert isinstance(rebuilt, errors.WorkerUnavailableError)


async def test_a_method_nobody_has_is_a_protocol_error():
    async with served() as (_servicer, channel):
        rebuilt = status.from_rpc_error(await failed(channel, "NoSuchMethod"))
    assert isinstance(rebuilt, errors.ProtocolError)


async def test_when_the_client_leaves_a_stream_the_handler_cleans_up_at_once():
    async with served() as (servicer, channel):
        servicer.items = 10**9  # more than the windows hold: it stands still in a write
        stream = channel.unary_stream("/test.S/UnaryStream")(b"x", timeout=10)
        assert await stream.read() == b"item"
        stream.cancel()
        async with asyncio.timeout(5):
            await servicer.ended.wait()


async def test_a_handler_may_abort_by_itself():
    async with served() as (_servicer, channel):
        wire = await failed(channel, "Refuses")
    assert (wire.code(), wire.details()) == (grpc.StatusCode.NOT_FOUND, "gone")


class Held:
    """Something large that a handler has made of a request."""


@pytest.mark.parametrize("method", ["UnaryUnary", "UnaryStream"])
async def test_a_refused_call_keeps_nothing_of_its_request_until_the_collector_comes(method):
    made = []

    async with served() as (servicer, channel):

        def refuse():
            held = Held()
            made.append(weakref.ref(held))
            try:
                raise KeyError(str(held))  # the cause's frames count as well
            except KeyError as err:
                raise errors.InvalidRequestError("text: too long", field="text") from err

        servicer._end = refuse
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(grpc.aio.AioRpcError, match="too long"):
                await call(channel, method)
            await asyncio.sleep(0)
            assert [ref() for ref in made] == [None]
        finally:
            gc.enable()
