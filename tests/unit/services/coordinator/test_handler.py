from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from minedraft.admin import SwapOrder
from minedraft.api import Finished, GenerationRequest, Message, ResumedSample, Started
from minedraft.errors import (
    DrainingError,
    DuplicateRequestError,
    InvalidRequestError,
    QueueFullError,
    SupersededError,
    WorkerUnavailableError,
)
from minedraft.plans import WorkerIdentity
from minedraft.security.caller import ANYBODY, Caller
from minedraft.services.coordinator import handler as handler_module
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.handler import Handler
from minedraft.services.coordinator.workers.membership import Membership
from minedraft.types import DebugOptions, FinishReason, Mode, SamplingParams
from tests.engine_world import EngineWorld, make_sample
from tests.worker_doubles import continuation

PROMPT = (1, 2, 3)
TOKEN, OTHER_TOKEN = b"t" * 16, b"o" * 16
ALICE, BOB = Caller("alice", b"a"), Caller("bob", b"b")


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

    def generate(
        self,
        request_id="r",
        *,
        max_tokens=6,
        resumed=(),
        resume_token=b"",
        caller=ANYBODY,
        **sampling,
    ):
        return self.handler.generate(
            GenerationRequest(
                token_ids=PROMPT,
                sampling=SamplingParams(max_tokens=max_tokens, temperature=0.0, **sampling),
                request_id=request_id,
                resumed=resumed,
                resume_token=resume_token,
            ),
            caller,
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
    assert served.handler._live == {}


async def test_a_full_queue_is_said_before_anything_else_is_looked_at():
    served = Served(has_target=False)
    served.world.core.max_waiting = 1
    served.world.engine.submit([make_sample("waits")])
    with pytest.raises(QueueFullError):
        await anext(served.generate(top_k=-3))


async def test_debug_options_are_refused_first_of_all_unless_the_coordinator_takes_them():
    asked = GenerationRequest(token_ids=PROMPT, debug=DebugOptions((4,)))
    served = Served(has_target=False)
    await served.handler.drain()
    with pytest.raises(InvalidRequestError, match=r"debug: .*--debug-requests") as caught:
        await rest(served.handler.generate(asked))
    assert caught.value.field == "debug"
    events = Served(debug_requests=True).handler.generate(asked)
    assert isinstance(await anext(events), Started)
    await events.aclose()


async def test_no_verifier_is_said_with_the_reason():
    served = Served(has_target=False)
    with pytest.raises(
        WorkerUnavailableError, match=r"no verifier at .*: none has joined yet; start one"
    ):
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
    old = served.generate(max_tokens=12, resume_token=TOKEN)
    await anext(old)
    served.world.verify()
    held = tuple(continuation(PROMPT, 1))
    new = served.generate(
        max_tokens=12, resumed=(ResumedSample(0, held),), resume_token=TOKEN, seed=1
    )
    await anext(new)
    with pytest.raises(SupersededError, match="'r'"):  # its RPC notices only now
        await anext(old)
    served.world.run_dry()
    tokens, ends = await rest(new)
    assert [end.reason for end in ends] == [FinishReason.LENGTH]
    assert [*held, *tokens] == continuation(PROMPT, 12)
    assert served.handler._live == {}


async def test_a_resumed_stream_whose_samples_have_all_ended_ends():
    served = Served()
    events = served.generate(resumed=(ResumedSample(0, (1, 2), is_finished=True),))
    assert [type(event) for event in [e async for e in events]] == [Started]


async def test_a_call_whose_beginning_was_lost_on_the_way_is_made_again_in_its_place():
    served = Served()
    lost = served.generate(resume_token=TOKEN)
    await anext(lost)
    again = served.generate(resume_token=TOKEN)
    await anext(again)
    with pytest.raises(SupersededError):
        await anext(lost)
    served.world.run_dry()
    assert (await rest(again))[0] == continuation(PROMPT, 6)


@pytest.mark.parametrize(
    ("began", "comes"),
    [
        ((ANYBODY, TOKEN), (ANYBODY, b"")),
        ((ANYBODY, TOKEN), (ANYBODY, OTHER_TOKEN)),
        ((ANYBODY, b""), (ANYBODY, b"")),  # who has no secret has nothing to show
        ((ALICE, TOKEN), (BOB, TOKEN)),
        ((ALICE, TOKEN), (ALICE, OTHER_TOKEN)),  # two people may share a certificate
        ((ALICE, b""), (ALICE, b"")),
    ],
)
async def test_another_callers_request_is_not_taken_over(began, comes):
    served = Served()
    first = served.generate(caller=began[0], resume_token=began[1])
    await anext(first)
    for resumed in ((), (ResumedSample(0, ()),)):
        second = served.generate(caller=comes[0], resume_token=comes[1], resumed=resumed, seed=1)
        with pytest.raises(DuplicateRequestError, match="'r' is in use"):
            await anext(second)
    served.world.run_dry()
    assert (await rest(first))[0] == continuation(PROMPT, 6)


async def test_a_resumed_stream_that_nobody_knows_here_goes_on_from_what_it_holds():
    served = Served()
    held = tuple(continuation(PROMPT, 2))
    events = served.generate(resumed=(ResumedSample(0, held),), resume_token=TOKEN, seed=1)
    await anext(events)
    served.world.run_dry()
    assert [*held, *(await rest(events))[0]] == continuation(PROMPT, 6)


# -- abort ----------------------------------------------------------------------------------


async def test_abort_counts_requests_that_were_live():
    served = Served()
    events = served.generate(max_tokens=40)
    await anext(events)
    assert served.handler.abort(("r", "never seen")) == 1
    assert served.handler.abort(("r",)) == 0
    _, ends = await rest(events)
    assert [end.reason for end in ends] == [FinishReason.ABORT]


@pytest.mark.parametrize(
    ("began", "comes", "is_aborted"),
    [
        ((ANYBODY, TOKEN), (ANYBODY, TOKEN), True),
        ((ANYBODY, TOKEN), (ANYBODY, OTHER_TOKEN), False),
        ((ANYBODY, TOKEN), (ANYBODY, b""), False),
        ((ANYBODY, b""), (ANYBODY, b""), True),
        ((ALICE, TOKEN), (ALICE, b""), True),
        ((ALICE, TOKEN), (BOB, TOKEN), False),
        ((ALICE, b""), (BOB, b""), False),
    ],
)
async def test_a_request_is_aborted_by_its_caller_alone(began, comes, is_aborted):
    served = Served()
    events = served.generate(caller=began[0], resume_token=began[1])
    await anext(events)
    assert served.handler.abort(("r",), (comes[1],), comes[0]) == is_aborted
    served.world.run_dry()
    _, ends = await rest(events)
    assert [end.reason for end in ends] == [
        FinishReason.ABORT if is_aborted else FinishReason.LENGTH
    ]


async def test_one_good_secret_of_several_is_enough_and_an_abort_without_any_may_be():
    served = Served()
    events = served.generate(resume_token=TOKEN)
    await anext(events)
    assert served.handler.abort(("r",)) == 0
    assert served.handler.abort(("r", "r", "x"), (OTHER_TOKEN, TOKEN, b"")) == 1
    await events.aclose()


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
    assert served.handler._live == {}
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
        (Mode(2, 4, 1, "round"), "shape"),
        (Mode(2, 4, 1, "x" * 10**6), "shape"),
        (Mode(2, 4, 1, policy="x" * 10**6), "policy"),
        (Mode(2, 4, 1, policy="schedule"), "policy"),
    ],
)
async def test_a_mode_out_of_range_names_the_field(mode, field):
    served = Served()
    with pytest.raises(InvalidRequestError, match=field) as caught:
        served.handler.set_mode(mode)
    assert caught.value.field == field
    assert len(str(caught.value)) < 200


async def test_the_mode_changes_under_load():
    served = Served()
    events = served.generate(max_tokens=40)
    await anext(events)
    served.handler.set_mode(Mode(1, 3, 5))
    assert served.handler.server_info().mode == Mode(1, 3, 5)
    served.handler.set_mode(Mode(1, 3, 5, policy="goodput"))
    served.handler.set_mode(Mode(1, 3, 4, policy=""))
    assert served.handler.server_info().mode == Mode(1, 3, 4, policy="goodput")
    assert (await served.handler.status()).policy.name == "goodput"
    await events.aclose()


@pytest.mark.parametrize("mode", [Mode(2, 4, 1, "auto"), Mode(3, 4, 1)])
async def test_a_mode_that_the_papers_rules_do_not_know_is_refused(mode):
    served = Served(assignment="paper", shape="fixed")
    with pytest.raises(InvalidRequestError, match="assignment='paper': needs shape") as caught:
        served.handler.set_mode(mode)
    assert caught.value.field == "shape"


async def test_the_status_says_the_shape():
    status = await Served().handler.status()
    assert status.shape.num_batches == status.mode.num_batches
    assert status.candidates == ()


@pytest.mark.parametrize("address", ["nohost", "http://h:1", "h:0", "a b:1", "dns:h:1"])
@pytest.mark.parametrize("field", ["address", "replace"])
async def test_a_swap_to_what_is_no_address_is_refused_at_once(field, address):
    order = SwapOrder(**{"address": "h:1", field: address})
    with pytest.raises(InvalidRequestError, match=f"{field}='{address}': want host:port") as caught:
        await Served().handler.swap_drafter(order)
    assert caught.value.field == field


@pytest.mark.parametrize("asked", [{"text": "hi"}, {"messages": (Message("user", "hi"),)}])
async def test_text_without_a_tokenizer_is_refused_before_a_verifier_is_waited_for(asked):
    served = Served(has_target=False)
    with pytest.raises(InvalidRequestError, match="restart the coordinator with --tokenizer DIR"):
        await anext(served.handler.generate(GenerationRequest(**asked)))
