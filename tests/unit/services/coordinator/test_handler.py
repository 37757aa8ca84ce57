from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from minedraft.admin import Mode
from minedraft.api import Finished, GenerationRequest, ResumedSample, Started
from minedraft.errors import (
    DrainingError,
    DuplicateRequestError,
    InvalidRequestError,
    PreconditionError,
    QueueFullError,
    WorkerUnavailableError,
)
from minedraft.plans import WorkerIdentity
from minedraft.services.coordinator import handler as handler_module
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.handler import Handler
from minedraft.services.coordinator.membership import Membership
from minedraft.types import FinishReason, SamplingParams
from tests.engine_world import EngineWorld, make_sample
from tests.worker_doubles import continuation

PROMPT = (1, 2, 3)


class Served:
    """A handler over an engine whose verifier is there (or not yet)."""

    def __init__(self, *, has_target=True, **config) -> None:
        self.world = EngineWorld()
        config = CoordinatorConfig(drafters=(), max_rows=8, max_batch_size=4, **config)
        self.membership = Membership(config, self.world.engine, "")
        self.handler = Handler(
            config=config,
            engine=self.world.engine,
            membership=self.membership,
            identity=WorkerIdentity("me", 1, 0, 0, "v"),
            tokenizer=None,
        )
        if has_target:
            self.world.verifier_up()
            self.membership.model = self.world.verifier.info

    def generate(self, request_id="r", *, max_tokens=6, resumed=(), **sampling):
        return self.handler.generate(
            GenerationRequest(
                token_ids=PROMPT,
                sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, **sampling),
                request_id=request_id,
                resumed=resumed,
            )
        )


async def rest(events) -> tuple[list[int], list[Finished]]:
    tokens: list[int] = []
    ends: list[Finished] = []
    async for event in events:
        if isinstance(event, Finished):
            ends.append(event)
        elif not isinstance(event, Started):
            tokens += event.token_ids
    return tokens, ends


# -- generate -------------------------------------------------------------------------------


async def test_a_stream_starts_goes_on_and_ends():
    served = Served()
    events = served.generate(seed=5)
    assert await anext(events) == Started("r", 5, 3)
    served.world.run_dry()
    tokens, ends = await rest(events)
    assert tokens == continuation(PROMPT, 6)
    assert [end.reason for end in ends] == [FinishReason.LENGTH]
    await served.handler.drain()  # nothing is live any more


async def test_leaving_the_stream_aborts_the_request():
    served = Served()
    async with aclosing(served.generate(max_tokens=40)) as events:
        await anext(events)
        assert served.world.core.num_running == 1
    assert not served.world.core.requests
    assert served.handler._samples == {}


async def test_a_full_queue_is_said_before_anything_else_is_looked_at():
    served = Served(has_target=False)
    served.world.core.max_waiting = 1
    served.world.engine.submit([make_sample("waits")])
    with pytest.raises(QueueFullError):
        await anext(served.generate(top_k=-3))


async def test_no_verifier_is_said_with_the_reason():
    served = Served(has_target=False)
    with pytest.raises(WorkerUnavailableError, match="no verifier: none has joined yet"):
        await anext(served.generate())
    served.membership.verifier.last_error = "connection refused"
    with pytest.raises(WorkerUnavailableError, match="connection refused"):
        served.handler.target_info()


async def test_more_samples_than_anybody_may_ask_for_are_invalid_not_a_full_queue():
    served = Served()
    served.world.core.max_waiting = 16
    with pytest.raises(InvalidRequestError, match=r"sampling\.n"):
        await anext(served.generate(n=10**6))


async def test_more_samples_than_the_queue_ever_holds_are_invalid_even_on_an_idle_service():
    served = Served()
    served.world.core.max_waiting = 2
    with pytest.raises(InvalidRequestError, match=r"sampling\.n is 3.*max_waiting_requests") as no:
        await anext(served.generate(n=3))
    assert no.value.field == "sampling.n"


async def test_an_id_in_use_is_refused_and_the_one_that_has_it_goes_on():
    served = Served()
    first = served.generate()
    await anext(first)
    with pytest.raises(DuplicateRequestError, match="'r' is in use"):
        await anext(served.generate())
    served.world.run_dry()
    assert (await rest(first))[0] == continuation(PROMPT, 6)


async def test_a_resumed_stream_takes_over_from_one_that_is_still_open():
    served = Served()
    old = served.generate(max_tokens=12)
    await anext(old)
    served.world.verify()
    held = tuple(continuation(PROMPT, 1))
    new = served.generate(max_tokens=12, resumed=(ResumedSample(0, held),))
    await anext(new)
    _, ends = await rest(old)  # its RPC notices only now
    assert [end.reason for end in ends] == [FinishReason.ABORT]
    served.world.run_dry()
    tokens, ends = await rest(new)
    assert [end.reason for end in ends] == [FinishReason.LENGTH]
    assert [*held, *tokens] == continuation(PROMPT, 12)
    assert served.handler._samples == {}


async def test_a_resumed_stream_whose_samples_have_all_ended_ends():
    served = Served()
    events = served.generate(resumed=(ResumedSample(0, (1, 2), is_finished=True),))
    assert [type(event) for event in [e async for e in events]] == [Started]


# -- abort ----------------------------------------------------------------------------------


async def test_abort_counts_requests_that_were_live():
    served = Served()
    events = served.generate(max_tokens=40)
    await anext(events)
    assert served.handler.abort(("r", "never seen")) == 1
    assert served.handler.abort(("r",)) == 0
    _, ends = await rest(events)
    assert [end.reason for end in ends] == [FinishReason.ABORT]


# -- drain ----------------------------------------------------------------------------------


async def test_a_draining_service_takes_nothing_new_and_lets_running_ones_end():
    served = Served()
    events = served.generate()
    await anext(events)
    draining = asyncio.ensure_future(served.handler.drain())
    await asyncio.sleep(0)
    with pytest.raises(DrainingError):
        await anext(served.generate("other"))
    served.world.run_dry()
    assert (await rest(events))[0] == continuation(PROMPT, 6)
    await draining


async def test_what_still_runs_after_the_grace_is_cut_off_and_told_to_go_on_elsewhere():
    served = Served(grace_s=0.0)
    events = served.generate(max_tokens=40)
    await anext(events)
    await served.handler.drain()
    with pytest.raises(DrainingError, match="before this answer was complete"):
        await rest(events)
    assert served.handler._samples == {}
    assert not served.world.core.requests


async def test_one_that_its_caller_aborted_before_the_drain_ends_as_aborted():
    served = Served(grace_s=0.0)
    events, others = served.generate(max_tokens=40), served.generate("other", max_tokens=40)
    await anext(events)
    await anext(others)
    served.handler.abort(["r"])
    await served.handler.drain()
    _, ends = await rest(events)
    assert [end.reason for end in ends] == [FinishReason.ABORT]
    with pytest.raises(DrainingError):
        await rest(others)


async def test_one_that_is_being_tokenized_when_the_drain_begins_is_refused(monkeypatch):
    served = Served()
    gate = asyncio.Event()
    accept = handler_module.Intake.accept

    async def slow(self, asked):
        await gate.wait()
        return await accept(self, asked)

    monkeypatch.setattr(handler_module.Intake, "accept", slow)
    first = asyncio.ensure_future(anext(served.generate()))
    await asyncio.sleep(0)
    await served.handler.drain()
    gate.set()
    with pytest.raises(DrainingError):
        await first


# -- looking and steering -------------------------------------------------------------------


async def test_status_tells_what_there_is():
    served = Served()
    events = served.generate(max_tokens=40)
    await anext(events)
    status = await served.handler.status()
    assert (status.num_running, status.num_waiting, status.draining) == (1, 0, False)
    assert status.num_blocks == 60
    assert status.num_blocks_used > 0
    assert status.rss_bytes > 10**6
    assert status.batches[0].step_id > 0
    assert status.counters.num_requests == 1
    assert [worker.role for worker in status.workers] == ["verifier"]
    await events.aclose()


@pytest.mark.parametrize(
    ("mode", "field"),
    [
        (Mode(0, 1, 1), "num_batches"),
        (Mode(9, 1, 1), "num_batches"),
        (Mode(2, 9, 1), "max_batch_size"),
        (Mode(2, 4, 17), "num_draft_tokens"),
        (Mode(2, 4, -1), "num_draft_tokens"),
    ],
)
async def test_a_mode_out_of_range_names_the_field(mode, field):
    served = Served()
    with pytest.raises(InvalidRequestError, match=field) as caught:
        served.handler.set_mode(mode)
    assert caught.value.field == field


async def test_the_mode_changes_while_idle_and_only_k_while_not():
    served = Served()
    served.handler.set_mode(Mode(2, 3, 1))
    events = served.generate(max_tokens=40)
    await anext(events)
    served.handler.set_mode(Mode(2, 3, 5))
    with pytest.raises(PreconditionError, match="1 requests are live"):
        served.handler.set_mode(Mode(1, 3, 5))
    assert served.handler.server_info().mode == Mode(2, 3, 5)
    await events.aclose()
