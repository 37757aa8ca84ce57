from __future__ import annotations

import asyncio
import dataclasses
import inspect
import socket

import grpc
import pytest

import minedraft
from minedraft import errors
from minedraft.api import Delta, Finished, Message, Started
from minedraft.client import Client, SyncClient
from minedraft.transport import channel
from minedraft.transport.limits import limits_for
from minedraft.types import FinishReason, Mode, SamplingDefaults, Speculation
from minedraft.v1 import admin_pb2, generation_pb2
from tests.fake_coordinator import FakeCoordinator, serve


async def test_generate_returns_the_whole_completion(client: Client):
    completion = await client.generate("hi", max_tokens=5, seed=11)
    assert len(completion.token_ids) == 5
    assert completion.text == "".join(f"w{i} " for i in completion.token_ids)
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.stop_reason is None
    assert completion.seed == 11
    assert completion.usage.num_output_tokens == 5
    assert completion.speculation.mean_acceptance_length == 3.0
    assert completion.timing.e2e_ns == 3


async def test_what_the_caller_wrote_reaches_the_server(client: Client, fake: FakeCoordinator):
    await client.generate(
        [1, 2],
        temperature=0.0,
        stop="\n",
        stop_token_ids=[3],
        logit_bias={4: -1.0},
        max_tokens=2,
        request_id="mine",
        speculation=Speculation(num_draft_tokens=0),
    )
    (request,) = fake.requests
    assert request.token_ids == (1, 2)
    assert request.sampling.temperature == 0.0
    assert request.sampling.stop == ("\n",)
    assert request.sampling.stop_token_ids == (3,)
    assert request.sampling.logit_bias == {4: -1.0}
    assert request.request_id == "mine"
    assert request.speculation.num_draft_tokens == 0


async def test_a_chat_may_be_written_as_dicts_or_messages(client: Client, fake: FakeCoordinator):
    await client.generate(messages=[{"role": "user", "content": "a"}, Message("assistant", "b")])
    assert fake.requests[0].messages == (Message("user", "a"), Message("assistant", "b"))


async def test_samples_are_kept_apart(client: Client):
    completion = await client.generate("hi", n=3, max_tokens=2, temperature=1.0)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert len({choice.token_ids for choice in completion.choices}) == 3
    assert completion.usage.num_output_tokens == 6


async def test_streamed_deltas_add_up_to_the_completion(client: Client):
    stream = client.stream("hi", max_tokens=7)
    deltas = [delta async for delta in stream]
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas) == stream.completion.text
    assert sum((delta.token_ids for delta in deltas), ()) == stream.completion.token_ids
    assert stream.request_id == stream.completion.request_id != ""


async def test_leaving_the_loop_aborts_the_request(client: Client, fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    stream = client.stream("hi", max_tokens=50)  # a name must not keep it alive
    async for _ in stream:
        break
    async with asyncio.timeout(5):
        await fake.cancelled.wait()
    with pytest.raises(errors.PreconditionError, match="loop"):
        _ = stream.completion


async def test_an_error_inside_the_loop_aborts_the_request(client: Client, fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    with pytest.raises(KeyError):  # noqa: PT012
        async for _ in client.stream("hi", max_tokens=50):
            raise KeyError
    async with asyncio.timeout(5):
        await fake.cancelled.wait()


async def test_cancelling_the_caller_aborts_the_request(client: Client, fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.generate("hi", max_tokens=50)
    async with asyncio.timeout(5):
        await fake.cancelled.wait()


async def test_a_stream_can_be_read_once(client: Client):
    stream = client.stream("hi")
    await stream.collect()
    with pytest.raises(errors.PreconditionError, match="once"):
        await stream.collect()


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequestError("sampling.top_p=7: want (0, 1]", field="sampling.top_p"),
        errors.QueueFullError("queue: 1024 requests wait"),
        errors.DuplicateRequestError("request r1 is live"),
        errors.WorkerUnavailableError("verifier is gone"),
        errors.StateError("bug"),
    ],
)
async def test_the_servers_error_arrives_as_the_same_class(
    client: Client, fake: FakeCoordinator, error: errors.MineDraftError
):
    fake.error = error
    with pytest.raises(type(error), match=str(error)[:5]) as caught:
        await client.generate("hi")
    assert getattr(caught.value, "field", "") == getattr(error, "field", "")


async def test_a_bad_argument_is_refused_before_anything_is_sent(
    client: Client, fake: FakeCoordinator
):
    with pytest.raises(errors.InvalidRequestError, match="max_tokens=-1"):
        await client.generate("hi", max_tokens=-1)
    with pytest.raises(errors.InvalidRequestError, match="both"):
        await client.generate("hi", messages=[])
    assert fake.requests == []


async def test_the_deadline_of_a_call_ends_it(client: Client, fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    with pytest.raises(errors.DeadlineError):
        await client.generate("hi", timeout_s=0.2)


async def test_a_stream_that_stops_short_is_the_servers_fault(
    client: Client, fake: FakeCoordinator
):
    fake.events = lambda _request: [Started("r", 1, 1), Delta(0, (1,), "a")]
    with pytest.raises(errors.ProtocolError, match="before sample 0 did"):
        await client.generate("hi")
    fake.events = lambda _request: []
    with pytest.raises(errors.ProtocolError, match="without an event"):
        await client.generate("hi")


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Delta(0, (), "")], "before Started"),
        ([Started("r", 1, 1), Started("r", 1, 1)], "second Started"),
        ([Started("r", 1, 1), Delta(1, (), "")], "only 1 were asked for"),
        (
            [Started("r", 1, 1), Finished(0, FinishReason.STOP), Delta(0, (), "")],
            "continues after its end",
        ),
    ],
)
async def test_events_out_of_order_are_the_servers_fault(
    client: Client, fake: FakeCoordinator, events, message
):
    fake.events = lambda _request: events
    with pytest.raises(errors.ProtocolError, match=message):
        await client.generate("hi")


async def test_closing_the_client_ends_live_streams_with_our_error(fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    client = await Client.connect(fake.address)
    with pytest.raises(errors.RequestAbortedError):  # noqa: PT012
        async for _ in client.stream("hi", max_tokens=9):
            await client.close()
    with pytest.raises(errors.PreconditionError, match="closed"):
        await client.status()


async def test_as_many_streams_as_a_connection_carries_hold_up_no_other_call(monkeypatch):
    limits = dataclasses.replace(limits_for(20_000), max_streams=2)
    monkeypatch.setattr(channel, "limits_for", lambda _open_files: limits)
    async with serve(FakeCoordinator()) as fake, await Client.connect(fake.address) as client:
        fake.gate = asyncio.Event()
        streams = [aiter(client.stream([1], max_tokens=9)) for _ in range(2)]
        for stream in streams:
            await anext(stream)
        async with asyncio.timeout(5):
            assert await client.abort("x") == 1
            assert (await client.status()).num_running == 2
        for stream in streams:
            await stream.aclose()


async def test_connecting_to_nobody_names_the_address():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening: nobody answers
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(errors.WorkerUnavailableError, match=f"{address} .*`minedraft serve`"):
            await Client.connect(address, timeout_s=0.3)


@pytest.fixture
def proxied(monkeypatch):
    """The environment of a company's laptop, where nobody listens at the proxy's port."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://me:secret@127.0.0.1:9")


async def test_the_environment_s_proxy_is_not_used(proxied):
    async with serve(FakeCoordinator()) as fake, await Client.connect(fake.address) as client:
        assert (await client.status()).num_running == 0


async def test_who_asks_for_the_proxy_gets_it_and_the_message_names_it(proxied):
    async with serve(FakeCoordinator()) as fake:
        with pytest.raises(errors.WorkerUnavailableError, match=r"http_proxy, 127\.0\.0\.1") as it:
            await Client.connect(fake.address, timeout_s=0.5, http_proxy=True)
    assert "secret" not in str(it.value)


async def test_a_proxy_that_was_not_used_is_named_with_its_option(proxied):
    with pytest.raises(errors.WorkerUnavailableError, match="want it with --http-proxy") as caught:
        await Client.connect("127.0.0.1:9", timeout_s=0.3)
    assert "secret" not in str(caught.value)


async def test_admin_calls_speak_plain_values(client: Client, fake: FakeCoordinator):
    assert await client.abort("a", "b") == 2
    assert (await client.model_info()).model.name == "fake-target"
    assert (await client.server_info()).mode == Mode(2, 8, 4)
    await client.set_mode(num_batches=1, max_batch_size=4, num_draft_tokens=0)
    assert (await client.status()).mode.name == "ar"
    await client.generate("hi", max_tokens=3)
    spans = await client.timeline()
    assert {span.lane for span in spans} == {"verify"}
    assert await client.timeline(since_unix_ns=spans[-1].start_ns) == ()


async def test_calls_about_text_speak_plain_values(client: Client, fake: FakeCoordinator):
    fake.sampling_defaults = SamplingDefaults(temperature=0.0, top_k=20)
    assert await client.tokenize("ab") == (0, 97, 98)
    assert await client.tokenize("ab", add_special_tokens=False) == (97, 98)
    chat = [{"role": "user", "content": "a"}]
    assert await client.tokenize(messages=chat) == (117, 97)
    assert await client.detokenize([0, 5]) == "w0 w5 "
    assert await client.detokenize((0, 5), skip_special_tokens=True) == "w5 "
    info = await client.tokenizer_info()
    assert (info.vocab_size, info.named_tokens) == (1000, {"eos_token": "</s>"})
    assert (await client.model_info()).sampling_defaults == fake.sampling_defaults
    fake.error = errors.QueueFullError("full")
    for call in (client.tokenize("ab"), client.detokenize([5])):
        with pytest.raises(errors.QueueFullError):
            await call
    for call in (client.tokenize(), client.tokenize("a", messages=chat), client.detokenize("a")):
        with pytest.raises(errors.InvalidRequestError):
            await call


def test_every_rpc_has_a_client_method():
    named = {"GetModelInfo": "model_info", "GetServerInfo": "server_info", "GetStatus": "status",
             "SetMode": "set_mode", "SwapDrafter": "swap_drafter",
             "GetTimeline": "timeline", "Generate": "generate",
             "Abort": "abort", "Tokenize": "tokenize", "Detokenize": "detokenize",
             "GetTokenizerInfo": "tokenizer_info", "GetMetrics": "metrics"}  # fmt: skip
    rpcs = {
        method.name
        for module in (generation_pb2, admin_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert rpcs == named.keys()
    for face in (Client, SyncClient):
        assert all(callable(getattr(face, name)) for name in named.values())


def test_both_clients_have_the_same_methods_with_the_same_arguments():
    def public(face: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in vars(face).items()
            if not name.startswith("_") and inspect.isfunction(member)
        }

    assert public(Client) == public(SyncClient)


def test_no_signature_shows_a_protobuf_type():
    for face in (Client, SyncClient):
        for name, member in vars(face).items():
            if name.startswith("_") or not inspect.isfunction(member):
                continue
            text = str(member.__annotations__)
            assert "pb2" not in text, (face, name)
            assert member.__doc__, (face, name)


def test_the_clients_are_names_of_the_package():
    assert minedraft.Client is Client
    assert minedraft.SyncClient is SyncClient


@pytest.mark.parametrize("address", ["localhost", "50050", ":50050", "h:0"])
async def test_what_is_no_address_is_not_dialled(address):
    with pytest.raises(errors.ConfigError, match=f"address='{address}': want host:port"):
        await Client.connect(address)


async def test_another_service_is_not_a_coordinator():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(errors.ProtocolError, match=f"127.0.0.1:{port} is not a coordinator"):
            await Client.connect(f"127.0.0.1:{port}")
    finally:
        await server.stop(0)
