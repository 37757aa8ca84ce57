"""What a worker sends to a coordinator, and a coordinator to a worker, as the worst bytes.

Over real servers, channels and sessions: whoever sends it is left with a reason, everybody else
goes on, and once it behaves nothing needs a restart.
"""

from __future__ import annotations

import math

import grpc
import pytest

from minedraft.admin import SwapOrder
from minedraft.api import GenerationRequest
from minedraft.client import NO_RETRIES, Client
from minedraft.errors import ProtocolError
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.workers.swap import Swapper
from minedraft.services.drafter.app import run as run_drafter
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.app import run as run_verifier
from minedraft.services.verifier.config import VerifierConfig
from minedraft.transport.channel import open_channel, server_options
from minedraft.transport.fence import Coordinator
from minedraft.transport.plan_session import BEGUN
from minedraft.transport.public_stub import PublicStub
from minedraft.types import Mode
from minedraft.v1 import drafter_pb2, types_pb2, verifier_pb2
from tests.hanging_workers import HangingWorld
from tests.integration.cluster import LOOPBACK, Service, until_up

GARBAGE = b"\xff" * 6
HOSTILE = Coordinator("hostile").metadata
MAX32, MAX64 = 2**32 - 1, 2**64 - 1


class Spoiler(grpc.aio.ServerInterceptor):
    """Answers one method with other bytes, while it is on."""

    def __init__(self, role: str, method: str, *answers: bytes) -> None:
        self.is_on = True
        self._name = f"/minedraft.v1.{role.title()}/{method}"
        self._answers = answers

    async def intercept_service(self, continuation, handler_call_details):
        handler = await continuation(handler_call_details)
        if not self.is_on or handler_call_details.method != self._name:
            return handler
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._session)
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _request, _context):
        return self._answers[0]

    async def _session(self, requests, context):
        await context.send_initial_metadata(BEGUN)
        for answer in self._answers:
            yield answer
        async for _ in requests:
            pass


def world() -> HangingWorld:
    return HangingWorld(step_timeout_s=120.0)


async def check_it_is_left_alone_and_taken_back(role: str, spoiler: Spoiler, why: str) -> None:
    async with world().running(spoiler, is_up=False) as here:
        member = here.member(role)
        await here.until(lambda: why in member.last_error)
        if role == "drafter":
            assert (await here.finish("meanwhile")).stats.total().num_accepted_tokens == 0
        spoiler.is_on = False
        await here.until(lambda: here.core.sources.newest > 0)
        assert (await here.finish("afterwards")).stats.total().num_drafts
        assert member.last_error == ""


@pytest.mark.parametrize(
    ("role", "method"),
    [
        ("verifier", "GetInfo"),
        ("verifier", "Session"),
        ("verifier", "FormLink"),
        ("drafter", "GetInfo"),
        ("drafter", "Session"),
        ("drafter", "FormLink"),
    ],
)
async def test_bytes_that_do_not_parse_stay_with_the_worker_that_sent_them(role, method):
    spoiler = Spoiler(role, method, GARBAGE)
    if (role, method) == ("verifier", "FormLink"):  # its link: the drafter's member says so
        async with world().running(spoiler, is_up=False) as here:
            await here.until(lambda: "does not parse" in here.member("drafter").last_error)
            assert (await here.finish("meanwhile")).stats.total().num_drafts == 0
            spoiler.is_on = False
            await here.until(lambda: here.core.sources.newest > 0)
        return
    await check_it_is_left_alone_and_taken_back(role, spoiler, "does not parse")


@pytest.mark.parametrize("method", ["LoadModel", "DropLink"])
async def test_bytes_that_do_not_parse_fail_a_swap_at_most(method):
    spoiler = Spoiler("drafter", method, GARBAGE)
    async with world().running(spoiler) as here:
        swapper = Swapper(here.membership)
        if method == "LoadModel":
            with pytest.raises(ProtocolError, match="does not parse"):
                await swapper.swap(SwapOrder(model="new"))
        else:  # the old link goes with the process; the new model drafts
            assert (await swapper.swap(SwapOrder(model="new"))).model.name == "new"
        assert (await here.finish("afterwards")).stats.total().num_drafts


def verify_answer(**result) -> bytes:
    answer = verifier_pb2.VerifierSessionResponse(result=verifier_pb2.VerifyResult(**result))
    return answer.SerializeToString()


def draft_answer(**result) -> bytes:
    answer = drafter_pb2.DrafterSessionResponse(result=drafter_pb2.DraftResult(**result))
    return answer.SerializeToString()


def lost(message, epoch: int) -> bytes:
    return message(
        link_lost=types_pb2.LinkLost(epoch=epoch, reason="r" * 10**6)
    ).SerializeToString()


_LOGPROB = types_pb2.PositionLogprobs(token=types_pb2.TokenLogprob(logprob=math.nan))


@pytest.mark.parametrize(
    ("role", "answer", "why"),
    [
        ("verifier", b"", "unknown answer"),
        ("verifier", verify_answer(step_id=MAX64), f"step_id={MAX64}"),
        ("verifier", verify_answer(), "step_id=0"),
        ("verifier", verify_answer(batch=MAX32), f"batch={MAX32}"),
        ("verifier", verify_answer(num_stale_drafts=MAX32), f"num_stale_drafts={MAX32}"),
        ("verifier", verify_answer(timing={"total_ns": MAX64}), f"total_ns={MAX64}"),
        ("verifier", verify_answer(timing={"started_unix_ns": MAX64}), "started_unix_ns="),
        ("verifier", verify_answer(rows=[{"num_draft_tokens": MAX32}]), "base_len=0"),
        ("verifier", verify_answer(rows=[{"base_len": 1, "logprobs": [_LOGPROB]}]), "logprob=nan"),
        ("verifier", lost(verifier_pb2.VerifierSessionResponse, MAX64), f"epoch={MAX64}"),
        ("drafter", b"", "unknown answer"),
        ("drafter", draft_answer(num_rows=MAX32), f"num_rows={MAX32}"),
        ("drafter", draft_answer(rows=[{"base_len": MAX32}]), f"base_len={MAX32}"),
        ("drafter", draft_answer(rows=[{"base_len": 1}] * 8193), "rows=8193"),
        ("drafter", draft_answer(num_broken=MAX32), f"num_broken={MAX32}"),
        ("drafter", draft_answer(num_draft_tokens=MAX32), f"num_draft_tokens={MAX32}"),
        ("drafter", draft_answer(timing={"cpu_ns": MAX64}), f"cpu_ns={MAX64}"),
        ("drafter", lost(drafter_pb2.DrafterSessionResponse, 0), "epoch=0"),
        ("drafter", lost(drafter_pb2.DrafterSessionResponse, MAX64), f"epoch={MAX64}"),
        ("drafter", verify_answer(step_id=1, rows=[{"row_id": 1}] * 9), ""),  # another's message
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
async def test_a_session_ends_at_a_number_that_makes_no_sense(role, answer, why):
    spoiler = Spoiler(role, "Session", *[answer] * 50)
    if not why:
        async with world().running(spoiler, is_up=False) as here:
            await here.finish("meanwhile")
        return
    await check_it_is_left_alone_and_taken_back(role, spoiler, why)


def info_answer(role: str, **of_model) -> bytes:
    """What the doubles say of themselves, but for some fields."""
    here = world()
    handler = here.verifier if role == "verifier" else here.drafter
    answer = {
        "verifier": verifier_pb2.VerifierGetInfoResponse,
        "drafter": drafter_pb2.DrafterGetInfoResponse,
    }[role](transports=[types_pb2.LINK_TRANSPORT_GRPC])
    if role == "verifier":
        answer.acceptance = "coupled"
    info = handler.info()
    for part, source in ((answer.identity, info.identity), (answer.model, info.model)):
        for field in part.DESCRIPTOR.fields:
            value = getattr(source, field.name)
            if not field.is_repeated:
                setattr(part, field.name, value)
    for name, value in of_model.items():
        if isinstance(value, list):
            getattr(answer.model, name)[:] = value
        else:
            setattr(answer.model, name, value)
    return answer.SerializeToString()


@pytest.mark.parametrize(
    ("role", "field", "value"),
    [
        ("verifier", "num_blocks", MAX32),
        ("verifier", "num_blocks", 0),
        ("verifier", "block_size", 0),
        ("verifier", "block_size", MAX32),
        ("verifier", "vocab_size", 0),
        ("verifier", "vocab_size", MAX32),
        ("verifier", "max_model_len", MAX32),
        ("verifier", "eos_token_ids", list(range(100_000))),
        ("drafter", "vocab_size", MAX32),
        ("drafter", "max_model_len", 0),
        ("drafter", "num_blocks", MAX32),
    ],
)
async def test_a_worker_whose_sizes_make_no_sense_is_refused_by_name(role, field, value):
    spoiler = Spoiler(role, "GetInfo", info_answer(role, **{field: value}))
    await check_it_is_left_alone_and_taken_back(role, spoiler, f"{field}=")


# -- what a coordinator sends ------------------------------------------------------------------


def verify_plan(**plan) -> bytes:
    request = verifier_pb2.VerifierSessionRequest(
        plan=verifier_pb2.VerifyPlan(**{"step_id": 1, **plan})
    )
    return request.SerializeToString()


def draft_plan(**plan) -> bytes:
    request = drafter_pb2.DrafterSessionRequest(
        plan=drafter_pb2.DraftPlan(**{"step_id": 1, **plan})
    )
    return request.SerializeToString()


def opened(**params) -> dict:
    return {"row_id": 1, "prompt_token_ids": [5, 6], "params": params}


_ROW = {"row_id": 1, "base_len": 2, "num_feed": 2, "new_block_ids": [0]}
_NUMBERS = ("base_len", "num_computed", "num_feed", "num_draft_tokens", "block_offset")
PLANS = {
    "Verifier": [
        GARBAGE,
        b"",
        verify_plan(rows=[{"row_id": 7, "base_len": 1, "num_feed": 1}]),
        verify_plan(draft_timeout_ns=MAX64, rows=[_ROW]),
        *[
            verify_plan(opens=[opened()], rows=[{**_ROW, field: MAX32}])
            for field in (
                "base_len",
                "num_computed",
                "num_feed",
                "num_draft_tokens",
                "block_offset",
            )
        ],
        verify_plan(opens=[opened()], rows=[{**_ROW, "new_block_ids": [MAX32]}]),
        verify_plan(opens=[opened()], rows=[{**_ROW, "base_len": 0, "num_feed": 0}]),
        verify_plan(opens=[{**opened(), "prompt_token_ids": [MAX32, 1]}], rows=[_ROW]),
        verify_plan(opens=[opened(temperature=math.nan)], rows=[_ROW]),
        verify_plan(opens=[opened(temperature=-1.0)], rows=[_ROW]),
        verify_plan(opens=[opened(presence_penalty=math.inf)], rows=[_ROW]),
        verify_plan(opens=[opened(repetition_penalty=0.0)], rows=[_ROW]),
        verify_plan(opens=[opened(logit_bias={MAX32: math.nan})], rows=[_ROW]),
        verify_plan(opens=[opened(logprobs=MAX32)], rows=[_ROW]),
        verify_plan(opens=[opened()] * 2000),
        verify_plan(batch=MAX32),
    ],
    "Drafter": [
        GARBAGE,
        b"",
        draft_plan(batch=MAX32),
        draft_plan(rows=[{"row_id": 1, "base_len": MAX32}]),
        draft_plan(rows=[{"row_id": 1, "base_len": 1, "num_draft_tokens": MAX32}]),
        draft_plan(opens=[{"row_id": 1, "params": {"min_p": math.nan}}]),
        draft_plan(opens=[{"row_id": 1, "debug": {"synthetic_acceptance": math.inf}}]),
        draft_plan(opens=[{"row_id": 1, "token_ids": [1]}] * 9000),
    ],
}
TOKEN_LINK = ("SetKey", "GetKey", "SendPackets")
LINKS = [
    types_pb2.FormLinkRequest(),
    types_pb2.FormLinkRequest(epoch=MAX64, name="n", transport=99, max_rows=1, max_draft_tokens=1),
    types_pb2.FormLinkRequest(
        epoch=1, name="n", transport=3, max_rows=MAX32, max_draft_tokens=MAX32, timeout_s=math.nan
    ),
]


async def refusals(channel: grpc.aio.Channel, service: str) -> list[grpc.StatusCode]:
    """Send everything there is; returns what became of each."""
    codes = []
    for plan in PLANS[service]:
        call = channel.stream_stream(f"/minedraft.v1.{service}/Session")(metadata=HOSTILE)
        await call.initial_metadata()
        await call.write(plan)
        async for answer in _quietly(call):
            assert service == "Verifier", "it was answered"
            told = verifier_pb2.VerifierSessionResponse.FromString(answer)
            assert told.WhichOneof("message") == "begun", "it was answered"
        codes.append(await call.code())
    session = channel.stream_stream(f"/minedraft.v1.{service}/Session")(metadata=HOSTILE)
    await session.initial_metadata()  # whoever has none may not order links
    methods = ("GetInfo", "FormLink", "DropLink", "LoadModel")
    calls = [(method, GARBAGE) for method in methods[: 2 if service == "Verifier" else 4]]
    for link in LINKS:
        request = link if service == "Verifier" else drafter_pb2.DrafterFormLinkRequest(link=link)
        calls.append(("FormLink", request.SerializeToString()))
    if service == "Verifier":
        for method in TOKEN_LINK[:2]:
            call = channel.unary_unary(f"/minedraft.v1.TokenLink/{method}")(GARBAGE)
            codes.append(await call.code())
        packets = channel.stream_unary("/minedraft.v1.TokenLink/SendPackets")(iter([GARBAGE]))
        codes.append(await packets.code())
    for method, data in calls:
        call = channel.unary_unary(f"/minedraft.v1.{service}/{method}")(data, metadata=HOSTILE)
        codes.append(await call.code())
    session.cancel()
    return codes


async def _quietly(call):
    try:
        async for answer in call:
            yield answer
    except grpc.aio.AioRpcError:
        return


async def test_what_a_coordinator_sends_ends_its_session_and_no_worker(target_dir):
    common = {"model": str(target_dir), "listen": LOOPBACK, "num_blocks": 64, "block_size": 8}
    verifier = Service(run_verifier, VerifierConfig(**common, grace_s=0.1))
    drafter = Service(run_drafter, DrafterConfig(**common, grace_s=0.1))
    addresses = [await verifier.start(), await drafter.start()]
    coordinator = None
    try:
        for service, address in zip(("Verifier", "Drafter"), addresses, strict=True):
            async with grpc.aio.insecure_channel(address, options=server_options(2**26)) as channel:
                codes = await refusals(channel, service)
            told = {grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT}
            assert set(codes) == told, codes
        config = CoordinatorConfig(
            listen=LOOPBACK, verifier=addresses[0], drafters=(addresses[1],), link="grpc",
            tokenizer=str(target_dir), reconnect_s=0.02, grace_s=0.1,
            trial_s=0.0,
        )  # fmt: skip
        coordinator = Service(run_coordinator, config)
        client = await Client.connect(await coordinator.start(), retry=NO_RETRIES)
        await until_up(client, with_drafter=True)
        answer = await client.generate([5, 6, 7], max_tokens=9, temperature=0.0, ignore_eos=True)
        assert len(answer.choices[0].token_ids) == 9
        assert answer.speculation.num_drafts
        await client.close()
    finally:
        for service in (coordinator, drafter, verifier):
            if service is not None:
                await service.stop()


class NoCoordinator(grpc.GenericRpcHandler):
    """Answers every call with bytes that are no message."""

    def service(self, handler_call_details):
        async def once(_request, _context):
            return GARBAGE

        async def stream(_request, _context):
            yield GARBAGE

        if handler_call_details.method.endswith("/Generate"):
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(once)


async def test_a_client_is_told_that_an_answer_does_not_parse():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((NoCoordinator(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    stub = PublicStub(open_channel(address), open_channel(address))
    asked = GenerationRequest(token_ids=(1,))
    try:
        for call in (
            stub.get_server_info(timeout_s=5.0),
            stub.get_model_info(timeout_s=5.0),
            stub.get_status(timeout_s=5.0),
            stub.abort(["r"], timeout_s=5.0),
            stub.set_mode(Mode(1, 1, 1), timeout_s=5.0),
            stub.swap_drafter(SwapOrder(model="m"), timeout_s=5.0),
            stub.get_timeline(max_spans=1, since_unix_ns=0, timeout_s=5.0),
            anext(stub.generate(asked, timeout_s=5.0)),
        ):
            with pytest.raises(ProtocolError, match="does not parse"):
                await call
    finally:
        await stub.close()
        await server.stop(0)
