from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from minedraft.errors import InvalidRequestError, PreconditionError, WorkerHeldError
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.plans import (
    DraftPlan,
    DraftResult,
    LinkLost,
    StepBegun,
    StepTiming,
    VerifyPlan,
    VerifyResult,
    VerifyRow,
    WorkerIdentity,
    WorkerInfo,
)
from minedraft.transport import answer_codec, plan_codec
from minedraft.transport.fence import Coordinator
from minedraft.transport.worker_service import (
    DrafterServicer,
    VerifierServicer,
    link_spec_from_proto,
    link_spec_to_proto,
)
from minedraft.types import ModelInfo, RowId
from minedraft.v1 import drafter_pb2, verifier_pb2

MODEL = ModelInfo("m", 50, 100, "f", "float32")
INFO = WorkerInfo(WorkerIdentity("w", 1, 2, 3, "v"), MODEL, ("gloo", "grpc"), "coupled", "l:1")


def spec(**change) -> LinkSpec:
    given = {"transport": Transport.GLOO, "q_width": 3, "verifier_address": "v:1", **change}
    return LinkSpec(epoch=7, name="n", max_rows=4, max_draft_tokens=5, timeout_s=2.0, **given)


class Handler:
    """Both kinds of worker: notes what it is asked."""

    def __init__(self, answer=None) -> None:
        self.asked: list = []
        self.answer = answer

    def info(self) -> WorkerInfo:
        return INFO

    async def form_link(self, spec) -> str:
        self.asked.append(spec)
        return "a link"

    async def drop_link(self, epoch) -> None:
        self.asked.append(epoch)

    async def load_model(self, model, tokenizer_fingerprint) -> ModelInfo:
        self.asked.append((model, tokenizer_fingerprint))
        return MODEL

    async def begin_session(self) -> None:
        self.asked.append("begin")

    def drafts(self, plan):
        return self.packet_of(plan) if plan.source else None

    async def packet_of(self, plan):
        return f"packet of {plan.step_id}"

    async def start_plan(self, plan, arrived_ns, *inputs):
        self.asked.append(plan)
        self.inputs = (arrived_ns, *inputs)
        done = asyncio.get_running_loop().create_future()
        done.set_result(self.answer)
        return done


class Context:
    def __init__(self, coordinator: str = "c1") -> None:
        self.written: asyncio.Queue = asyncio.Queue()
        self.begun = asyncio.Event()
        self.coordinator = coordinator

    def peer(self) -> str:
        return "test"

    def invocation_metadata(self):
        return Coordinator(self.coordinator, "here").metadata

    async def send_initial_metadata(self, metadata) -> None:
        self.begun.set()

    async def write(self, message) -> None:
        self.written.put_nowait(message)


@asynccontextmanager
async def session_of(servicer):
    """The servicer while coordinator c1 has a session open."""
    context, gate = Context(), asyncio.Event()

    async def requests():
        await gate.wait()
        return
        yield

    session = asyncio.create_task(servicer.Session(requests(), context))
    await context.begun.wait()
    yield servicer
    gate.set()
    await session


@pytest.mark.parametrize("transport", Transport)
def test_a_link_order_survives_the_wire(transport):
    assert link_spec_from_proto(link_spec_to_proto(spec(transport=transport))) == spec(
        transport=transport
    )


def test_a_transport_nobody_knows_is_refused_with_its_number():
    message = link_spec_to_proto(spec())
    message.transport = 99
    with pytest.raises(InvalidRequestError, match="transport=99") as caught:
        link_spec_from_proto(message)
    assert caught.value.field == "transport"


async def test_both_say_who_they_are():
    for answer in (
        await VerifierServicer(Handler()).GetInfo(verifier_pb2.VerifierGetInfoRequest(), None),
        await DrafterServicer(Handler()).GetInfo(drafter_pb2.DrafterGetInfoRequest(), None),
    ):
        assert plan_codec.identity_from_proto(answer.identity) == INFO.identity
        assert plan_codec.model_info_from_proto(answer.model) == MODEL
        assert len(answer.transports) == 2
    verifier = await VerifierServicer(Handler()).GetInfo(None, None)
    assert (verifier.acceptance, verifier.link_address) == ("coupled", "l:1")


async def test_orders_reach_the_handler():
    handler = Handler()
    order = link_spec_to_proto(spec())
    async with session_of(VerifierServicer(handler)) as verifier:
        formed = await verifier.FormLink(order, Context())
    assert formed.description == "a link"
    async with session_of(DrafterServicer(handler)) as drafter:
        formed = await drafter.FormLink(drafter_pb2.DrafterFormLinkRequest(link=order), Context())
        assert formed.description == "a link"
        await drafter.DropLink(drafter_pb2.DrafterDropLinkRequest(epoch=7), Context())
        request = drafter_pb2.DrafterLoadModelRequest(model="new", tokenizer_fingerprint="f")
        loaded = await drafter.LoadModel(request, Context())
    assert plan_codec.model_info_from_proto(loaded.model) == MODEL
    assert handler.asked == ["begin", spec(), "begin", spec(), 7, ("new", "f")]


async def test_orders_of_a_coordinator_without_the_session_reach_nobody():
    handler, other = Handler(), Context("c2")
    order = link_spec_to_proto(spec())
    async with session_of(VerifierServicer(handler)) as verifier:
        with pytest.raises(WorkerHeldError, match="this verifier belongs to coordinator c1"):
            await verifier.FormLink(order, other)
    async with session_of(DrafterServicer(handler)) as drafter:
        for call, request in (
            (drafter.FormLink, drafter_pb2.DrafterFormLinkRequest(link=order)),
            (drafter.DropLink, drafter_pb2.DrafterDropLinkRequest(epoch=7)),
            (drafter.LoadModel, drafter_pb2.DrafterLoadModelRequest(model="new")),
        ):
            with pytest.raises(WorkerHeldError, match="this drafter belongs to coordinator c1"):
                await call(request, other)
    with pytest.raises(PreconditionError, match="no session open"):
        await drafter.DropLink(drafter_pb2.DrafterDropLinkRequest(epoch=7), Context())
    assert handler.asked == ["begin", "begin"]


@pytest.mark.parametrize(
    ("servicer", "plan", "encode", "decode", "answer"),
    [
        (
            VerifierServicer,
            VerifyPlan(5, 1, 0),
            plan_codec.verify_plan_to_proto,
            answer_codec.verify_answer_from_proto,
            VerifyResult(5, 1, (), StepTiming()),
        ),
        (
            DrafterServicer,
            DraftPlan(5, 1, 7),
            plan_codec.draft_plan_to_proto,
            answer_codec.draft_answer_from_proto,
            DraftResult(5, 1, 4, 2, StepTiming(), 7, 1),
        ),
    ],
    ids=["verifier", "drafter"],
)
async def test_plans_go_in_and_answers_and_notes_come_out(servicer, plan, encode, decode, answer):
    handler = Handler(answer)
    served, context = servicer(handler), Context()
    gate = asyncio.Event()

    async def requests():
        yield encode(plan)
        await gate.wait()

    session = asyncio.create_task(served.Session(requests(), context))
    assert decode(await context.written.get()) == answer
    served.sessions.push(LinkLost(7, "cable"))
    assert decode(await context.written.get()) == LinkLost(7, "cable")
    assert handler.asked == ["begin", plan]
    gate.set()
    await session


@pytest.mark.parametrize("k", [0, 2])
async def test_a_verifier_says_which_step_begins_and_starts_it_with_its_drafts(k):
    answer = VerifyResult(5, 1, (), StepTiming())
    handler = Handler(answer)
    served, context = VerifierServicer(handler), Context()
    row = VerifyRow(RowId(1), 3, (), 0, 3, k, (0,), 0)
    gate = asyncio.Event()

    async def requests():
        yield plan_codec.verify_plan_to_proto(VerifyPlan(5, 1, 7 if k else 0, (row,)))
        await gate.wait()

    session = asyncio.create_task(served.Session(requests(), context))
    told = [answer_codec.verify_answer_from_proto(await context.written.get()) for _ in range(2)]
    assert told == [StepBegun(5, 1), answer]
    arrived_ns, packet, ready_ns = handler.inputs
    assert packet == ("packet of 5" if k else None)
    assert ready_ns > arrived_ns if k else ready_ns == arrived_ns
    gate.set()
    await session
