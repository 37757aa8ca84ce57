from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from minedraft.api import Delta, Finished
from minedraft.errors import (
    DuplicateRequestError,
    NonFiniteError,
    ProtocolError,
    QueueFullError,
    StateError,
    WorkerUnavailableError,
)
from minedraft.plans import DraftResult, RowResult, StepTiming
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.streams import EventStream
from minedraft.services.coordinator.text.output import Finish
from minedraft.types import FinishReason, RequestId, RowError
from tests.engine_world import EngineWorld, make_sample, read
from tests.worker_doubles import continuation

SECOND = 10**9


# -- requests -------------------------------------------------------------------------------


async def test_a_request_runs_to_its_length_and_ends_once():
    world = EngineWorld()
    world.verifier_up()
    world.drafter_up(1)
    sample = make_sample("r", (4, 5), 9)
    world.engine.submit([sample])
    world.run_dry()
    tokens, ends = await read(sample.stream)
    assert tokens[0] == continuation((4, 5), 9)
    assert ends[0].reason is FinishReason.LENGTH
    assert (ends[0].usage.num_prompt_tokens, ends[0].usage.num_output_tokens) == (2, 9)
    assert ends[0].speculation.num_accepted_tokens > 0
    assert world.core.counters.num_finished == {"length": 1}


async def test_what_comes_after_a_stop_is_neither_sent_nor_committed():
    world = EngineWorld()
    world.verifier_up()
    world.drafter_up(1)
    truth = continuation((4, 5), 9)
    stop = truth[5]
    kept = truth.index(stop) + 1
    sample = make_sample("r", (4, 5), 30, stop_ids=(stop,))
    world.engine.submit([sample])
    world.run_dry()
    tokens, ends = await read(sample.stream)
    assert tokens[0] == truth[:kept]
    assert (ends[0].reason, ends[0].stop_token_id) == (FinishReason.STOP, stop)
    assert ends[0].usage.num_output_tokens == kept
    assert world.core.counters.num_output_tokens == kept


@pytest.mark.parametrize("num_steps", [0, 1, 3])
async def test_a_row_without_numbers_ends_its_request_alone(num_steps):
    world = EngineWorld()
    world.verifier_up()
    bad, good = make_sample("bad", (4, 5), 9), make_sample("good", (6, 7), 9)
    world.engine.submit([bad])
    world.engine.submit([good])
    for _ in range(num_steps):
        world.verify()
    result = world.verifier.run()
    rows = tuple(
        RowResult(row.row_id, row.base_len, (), error=RowError.NON_FINITE)
        if row.row_id == bad.request.row_id
        else row
        for row in result.rows
    )
    world.engine.on_verify_result(replace(result, rows=rows))
    with pytest.raises(NonFiniteError, match=r"not finite \(NaN or infinity\)"):
        await read(bad.stream)
    world.run_dry()
    tokens, ends = await read(good.stream)
    assert (tokens[0], ends[0].reason) == (continuation((6, 7), 9), FinishReason.LENGTH)
    counters = world.core.counters
    assert (counters.num_broken_rows, counters.num_finished) == (1, {"error": 1, "length": 1})
    assert world.core.blocks.num_used == 0


async def test_requests_wait_for_a_verifier():
    world = EngineWorld()
    sample = make_sample("r")
    world.engine.submit([sample])
    assert world.core.num_waiting == 1
    world.verifier_up()
    world.run_dry()
    assert (await read(sample.stream))[0][0] == continuation((1, 2, 3), 6)


async def test_the_samples_of_a_request_are_queued_all_or_none():
    world = EngineWorld(max_waiting=3)
    world.engine.submit([make_sample("r#1")])
    stream = EventStream(2)
    with pytest.raises(DuplicateRequestError, match="'r#1' is in use"):
        world.engine.submit([make_sample("r", stream=stream), make_sample("r#1", index=1)])
    assert list(world.core.requests) == ["r#1"]
    with pytest.raises(QueueFullError):
        world.engine.submit([make_sample(f"q{i}") for i in range(3)])
    assert list(world.core.requests) == ["r#1"]
    world.engine.submit([make_sample("r")])
    assert world.engine.abort(RequestId("r"))


async def test_samples_share_a_stream_and_end_one_by_one():
    world = EngineWorld()
    world.verifier_up()
    stream = EventStream(2)
    world.engine.submit(
        [
            make_sample("r", (1,), 3, stream=stream),
            make_sample("r#1", (1,), 7, stream=stream, index=1),
        ]
    )
    world.run_dry()
    tokens, ends = await read(stream)
    assert tokens == {0: continuation((1,), 3), 1: continuation((1,), 7)}
    assert set(ends) == {0, 1}


async def test_a_sample_whose_output_is_whole_already_ends_without_a_step():
    world = EngineWorld()
    sample = make_sample("r")
    sample.request.go_on_from([1, 2])
    sample.finish = Finish(FinishReason.STOP, stop_token_id=2)
    world.engine.submit([sample])
    assert world.core.requests == {}
    tokens, ends = await read(sample.stream)
    assert tokens == {}
    assert (ends[0].reason, ends[0].stop_token_id) == (FinishReason.STOP, 2)
    assert ends[0].usage.num_output_tokens == 2
    assert not world.engine.abort(RequestId("r"))


async def test_times_are_those_of_arrival_admission_first_token_and_end():
    world = EngineWorld()
    sample = make_sample("r", max_tokens=2)
    world.now_ns = 100
    world.engine.submit([sample])
    world.now_ns = 130
    world.verifier_up()
    world.now_ns = 170
    world.verify()
    world.now_ns = 250
    world.verify()
    _, ends = await read(sample.stream)
    timing = ends[0].timing
    assert (timing.queue_ns, timing.ttft_ns, timing.e2e_ns) == (30, 70, 150)


# -- aborts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [0, 1, 2])
async def test_an_abort_ends_a_request_in_whatever_phase_and_frees_what_it_had(num_steps):
    world = EngineWorld()
    world.verifier_up()
    world.drafter_up(1)
    sample = make_sample("r", max_tokens=40)
    world.engine.submit([sample])
    for _ in range(num_steps):
        world.draft()
        world.verify()
    assert world.engine.abort(RequestId("r"))
    assert not world.engine.abort(RequestId("r"))
    world.run_dry()
    world.draft()
    _, ends = await read(sample.stream)
    assert ends[0].reason is FinishReason.ABORT
    assert world.core.blocks.num_used == 0
    world.verify()
    assert world.verifier.rows == world.drafters[1].rows == {}


async def test_an_unknown_id_is_not_aborted():
    assert not EngineWorld().engine.abort(RequestId("nobody"))


def had_planned(world: EngineWorld) -> None:
    """Some steps, so that there are answers to them."""
    world.engine.submit([make_sample("earlier", max_tokens=1)])
    world.run_dry()


async def test_an_answer_that_makes_no_sense_is_refused():
    world = EngineWorld()
    world.verifier_up()
    world.engine.submit([make_sample("r")])
    result = world.verifier.run()
    row = replace(result.rows[0], base_len=99)
    with pytest.raises(ProtocolError, match="base_len 99"):
        world.engine.on_verify_result(replace(result, rows=(row,)))


@pytest.mark.parametrize("step_id", [0, 2, 2**64 - 1])
async def test_an_answer_to_a_step_that_was_never_planned_is_refused(step_id):
    world = EngineWorld()
    world.verifier_up()
    world.engine.submit([make_sample("r")])
    result = replace(world.verifier.run(), step_id=step_id)
    with pytest.raises(ProtocolError, match=f"step_id={step_id}:"):
        world.engine.on_verify_result(result)
    with pytest.raises(ProtocolError, match=f"step_id={step_id}:"):
        world.engine.on_draft_result(replace(note(1, SECOND), step_id=step_id))


@pytest.mark.parametrize("where", ["processor", "core", "stream", "report"])
async def test_a_commit_that_fails_half_way_ends_that_request_and_no_other(where, monkeypatch):
    world = EngineWorld()
    world.verifier_up()
    bad, good = make_sample("bad", max_tokens=3), make_sample("good", max_tokens=3)
    world.engine.submit([bad])
    world.engine.submit([good])
    world.verify()

    def fail(*_args, **_kwargs):
        raise KeyError("the user's words")

    if where == "processor":
        push = bad.processor.push
        monkeypatch.setattr(bad.processor, "push", lambda ids: (push(ids), fail()))
    elif where == "core":
        commit = Request.commit
        monkeypatch.setattr(
            Request,
            "commit",
            lambda request, ids: fail() if request is bad.request else commit(request, ids),
        )
    else:
        monkeypatch.setattr(bad.stream, {"stream": "push", "report": "finish"}[where], fail)
    world.run_dry()
    with pytest.raises(StateError, match="the coordinator failed: KeyError"):
        await read(bad.stream)
    assert (await read(good.stream))[0][0] == continuation((1, 2, 3), 3)
    assert world.core.is_idle
    assert world.core.blocks.num_used == 0


async def test_fail_all_ends_every_stream_with_the_error():
    world = EngineWorld()
    samples = [make_sample(f"r{i}") for i in range(3)]
    for sample in samples:
        world.engine.submit([sample])
    world.engine.fail_all(WorkerUnavailableError("gone"))
    for sample in samples:
        with pytest.raises(WorkerUnavailableError, match="gone"):
            await anext(sample.stream)
    assert world.core.is_idle


async def test_a_bug_in_the_core_ends_every_stream_and_the_service(monkeypatch):
    world = EngineWorld()
    world.verifier_up()
    sample = make_sample("r")
    world.engine.submit([sample])

    def broken():
        raise StateError("a bug")

    monkeypatch.setattr(world.core, "plan", broken)
    with capture_logs() as logs:
        world.verify()
    assert [entry["event"] for entry in logs] == ["engine.failed"]
    with pytest.raises(StateError, match="the coordinator failed: StateError"):
        await read(sample.stream)
    with pytest.raises(StateError, match="a bug"):
        await world.engine.failure


# -- the draft timeout ----------------------------------------------------------------------


def note(epoch: int, total_ns: int) -> DraftResult:
    return DraftResult(1, 0, 4, 1, StepTiming(total_ns=total_ns), epoch)


async def test_plans_carry_the_draft_timeout():
    world = EngineWorld()
    world.verifier_up()
    had_planned(world)
    world.drafter_up(1)
    world.engine.on_draft_result(note(1, SECOND))
    world.engine.submit([make_sample("r")])
    world.verify()  # its prompt: now it is drafted for
    plan = world.verify_plans[-1]
    assert (plan.source, plan.draft_timeout_ns) == (1, 6 * SECOND)


async def test_deltas_are_only_of_tokens_that_are_committed():
    world = EngineWorld()
    world.verifier_up()
    sample = make_sample("r", max_tokens=3)
    world.engine.submit([sample])
    world.verify()
    assert await anext(sample.stream) == Delta(0, tuple(continuation((1, 2, 3), 1)), "")
    world.verify()
    world.verify()
    events = [event async for event in sample.stream]
    assert [type(event) for event in events] == [Delta, Finished]
