from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from minedraft.errors import IncompatibleWorkerError, WorkerUnavailableError
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.plans import WorkerIdentity, WorkerInfo
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.workers.links import Linker
from minedraft.services.coordinator.workers.members import Member
from minedraft.types import ModelInfo

IDENTITY = WorkerIdentity("w", 1, 0, 0, "v")
MODEL = ModelInfo("m", 50, 100, "f", "float32")


class End:
    """One end of links."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.specs: list[LinkSpec] = []
        self.error: Exception | None = None
        self.was_cancelled = False
        self.gate: asyncio.Event | None = None

    async def form_link(self, spec: LinkSpec) -> str:
        self.specs.append(spec)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return self.name


def pair(
    *,
    link="grpc",
    acceptance="coupled",
    link_address="",
    near=("grpc",),
    far=("grpc",),
    at="verifier:1",
):
    verifier = Member("verifier", at, connection=End("receiving"))
    verifier.info = WorkerInfo(IDENTITY, MODEL, near, acceptance, link_address)
    drafter = Member("drafter", "drafter:1", connection=End("sending"))
    drafter.info = WorkerInfo(IDENTITY, MODEL, far)
    config = CoordinatorConfig(link=link, max_rows=9, max_draft_tokens=5, q_width=7)
    return Linker(config, verifier), verifier, drafter


async def form(linker, drafter):
    source = linker.begin(drafter, MODEL)
    await linker.form(drafter, source)
    return source


async def test_both_ends_get_the_same_order_and_the_receiver_describes_it():
    linker, verifier, drafter = pair()
    source = await form(linker, drafter)
    assert (source.source_id, source.description) == (1, "receiving")
    assert (source.model, drafter.sources) == (MODEL, (source,))
    assert verifier.connection.specs == drafter.connection.specs
    (spec,) = verifier.connection.specs
    assert (spec.transport, spec.max_rows, spec.max_draft_tokens) == (Transport.GRPC, 9, 5)
    assert (spec.q_width, spec.verifier_address) == (0, "verifier:1")


async def test_every_attempt_has_a_new_epoch_and_a_new_name():
    linker, verifier, drafter = pair()
    drafter.connection.error = WorkerUnavailableError("no route")
    with pytest.raises(WorkerUnavailableError):
        await form(linker, drafter)
    drafter.connection.error = None
    assert (await form(linker, drafter)).source_id == 2
    assert [source.source_id for source in drafter.sources] == [2], "the first one is over"
    assert len({spec.name for spec in verifier.connection.specs}) == 2


async def test_under_rejection_distributions_travel():
    linker, verifier, drafter = pair(acceptance="rejection", link_address="public:9")
    await form(linker, drafter)
    (spec,) = verifier.connection.specs
    assert (spec.q_width, spec.verifier_address) == (7, "public:9")


async def test_an_end_that_fails_takes_the_other_down_and_its_error_is_told_bare():
    linker, verifier, drafter = pair()
    verifier.connection.gate = asyncio.Event()
    drafter.connection.error = WorkerUnavailableError("no route")
    with pytest.raises(WorkerUnavailableError, match="no route"):
        await form(linker, drafter)
    assert verifier.connection.was_cancelled


@pytest.mark.parametrize("who", ["verifier", "drafter"])
async def test_a_link_whose_end_left_while_it_was_formed_is_none(who):
    linker, verifier, drafter = pair()
    gate = verifier.connection.gate = asyncio.Event()
    forming = asyncio.ensure_future(form(linker, drafter))
    for _ in range(3):
        await asyncio.sleep(0)
    {"verifier": verifier, "drafter": drafter}[who].connection = End("another session")
    gate.set()
    with pytest.raises(WorkerUnavailableError, match="left while it was formed"):
        await forming


async def test_a_link_that_was_lost_before_both_ends_had_answered_is_none():
    linker, verifier, drafter = pair()
    gate = drafter.connection.gate = asyncio.Event()
    source = linker.begin(drafter, MODEL)
    forming = asyncio.ensure_future(linker.form(drafter, source))
    for _ in range(3):
        await asyncio.sleep(0)
    assert verifier.connection.specs
    source.end()
    gate.set()
    with pytest.raises(WorkerUnavailableError, match="link 1 was lost as soon as it was formed"):
        await forming


async def test_an_end_that_is_not_there_is_said_so():
    linker, _, drafter = pair()
    drafter.connection = None
    with pytest.raises(WorkerUnavailableError, match="one of its ends is not there"):
        await form(linker, drafter)


async def test_auto_goes_on_with_grpc_where_gloo_does_not_form_and_says_so():
    both = ("gloo", "grpc")
    linker, verifier, drafter = pair(link="auto", near=both, far=both, at="127.0.0.1:1")
    drafter.connection.error = WorkerUnavailableError("the peer did not come")
    with capture_logs() as logs, pytest.raises(WorkerUnavailableError):
        await form(linker, drafter)
    drafter.connection.error = None
    (fallen,) = logs
    assert (fallen["event"], fallen["failed"], fallen["to"]) == ("link.falls_back", "gloo", "grpc")
    source = await form(linker, drafter)
    assert source.description == "receiving (auto: gloo did not form)"
    transports = [spec.transport for spec in verifier.connection.specs]
    assert transports == [Transport.GLOO, Transport.GRPC]


async def test_an_end_that_leaves_says_nothing_about_the_transport():
    both = ("gloo", "grpc")
    linker, verifier, drafter = pair(link="auto", near=both, far=both, at="127.0.0.1:1")
    gate = drafter.connection.gate = asyncio.Event()
    drafter.connection.error = WorkerUnavailableError("the connection was closed")
    forming = asyncio.ensure_future(form(linker, drafter))
    for _ in range(3):
        await asyncio.sleep(0)
    drafter.connection = End("another session")
    gate.set()
    with pytest.raises(WorkerUnavailableError, match="was closed"):
        await forming
    await form(linker, drafter)
    assert verifier.connection.specs[-1].transport is Transport.GLOO


async def test_ends_without_a_common_transport_are_refused():
    linker, verifier, drafter = pair(link="auto", near=("gloo",), far=("grpc",))
    with pytest.raises(IncompatibleWorkerError):
        await form(linker, drafter)
    assert verifier.connection.specs == []
