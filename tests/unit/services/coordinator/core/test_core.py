from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import (
    DuplicateRequestError,
    InvalidRequestError,
    ProtocolError,
    QueueFullError,
)
from minedraft.plans import DraftResult, RowResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.types import Mode, RequestId, RowParams
from tests.core_model import BLOCK, CoreModel
from tests.plan_checks import CONTEXT
from tests.worker_doubles import continuation

AR, SD, PSD = Mode(1, 4, 0), Mode(1, 4, 4), Mode(2, 4, 4)
MODES = [AR, SD, PSD, Mode(3, 2, 2), Mode(1, 1, 4), Mode(2, 1, 7)]
PROMPTS = [tuple(range(1, 2 + (i * 5) % 17)) for i in range(9)]


def outputs(model: CoreModel, num_requests: int, max_tokens: int = 12) -> dict[str, list[int]]:
    for prompt in PROMPTS[:num_requests]:
        model.submit(prompt, max_tokens)
    model.run_dry()
    return model.outputs


def want(num_requests: int, max_tokens: int = 12) -> dict[str, list[int]]:
    return {f"r{i}": continuation(PROMPTS[i], max_tokens) for i in range(num_requests)}


def serve(model: CoreModel, num_steps: int) -> None:
    for _ in range(num_steps):
        model.rotate()
        model.check()


def members(model: CoreModel) -> list[tuple[str, ...]]:
    return [model.core.batches.members(b) for b in range(model.core.mode.num_batches)]


# -- one output, whatever happens -----------------------------------------------------------


@pytest.mark.parametrize("num_requests", [1, 2, 3, 9])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_every_mode_and_odd_count_serves_the_same_output(mode, num_requests):
    assert outputs(CoreModel(mode), num_requests) == want(num_requests)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_tiny_pool_preempts_and_changes_no_output(mode):
    model = CoreModel(mode, num_blocks=8)
    assert outputs(model, 9) == want(9)
    if mode.max_batch_size > 1:
        assert model.core.counters.num_preemptions > 0


@pytest.mark.parametrize("mode", [AR, SD, PSD], ids=str)
def test_two_that_fit_one_at_a_time_both_finish(mode):
    model = CoreModel(mode, num_blocks=8)
    for _ in range(2):
        model.submit(tuple(range(1, 13)), 20)  # 32 positions: the whole pool
    model.run_dry()
    assert list(model.outputs.values()) == [continuation(tuple(range(1, 13)), 20)] * 2


def test_one_that_can_never_fit_is_refused_and_the_next_is_served():
    model = CoreModel(PSD, num_blocks=3)
    with pytest.raises(InvalidRequestError, match="prompt of 6 and max_tokens 8 need 4 KV"):
        model.core.submit(Request(RequestId("big"), (1,) * 6, RowParams(), 8))
    model.submit((1,) * 6, 7)
    model.run_dry()
    assert len(model.outputs["r0"]) == 7


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_last_token_needs_no_room_in_the_pool(mode):
    model = CoreModel(mode, num_blocks=8)
    room = 8 * BLOCK + 1
    prompts = [(1, 2, 3), tuple(range(20)), (4,) * 32]
    for prompt in prompts:
        model.submit(prompt, room - len(prompt))
    model.run_dry()
    assert model.outputs == {
        f"r{i}": continuation(prompt, room - len(prompt)) for i, prompt in enumerate(prompts)
    }


@pytest.mark.parametrize("short", range(1, 10))
def test_a_request_fills_the_context_exactly(short):
    model = CoreModel(replace(PSD, num_draft_tokens=7))
    prompt = tuple(range(CONTEXT - short))
    model.submit(prompt, short)
    model.run_dry()
    assert model.outputs["r0"] == continuation(prompt, short)


@pytest.mark.parametrize("limit", [8, 12, 20, 21])
def test_beyond_the_drafters_context_decoding_goes_on_without_drafts(limit):
    model = CoreModel(PSD, drafter_context=limit)
    model.submit((1, 2, 3), 30)
    model.run_dry()
    assert model.outputs["r0"] == continuation((1, 2, 3), 30)
    ks = [row.num_draft_tokens for plan in model.sent for row in plan.rows]
    assert max(ks) == 4
    assert ks[-3:] == [0, 0, 0]


# -- drafts missing, workers lost -----------------------------------------------------------


def test_drafts_that_never_come_cost_the_speculation_only():
    model = CoreModel(PSD)
    for prompt in PROMPTS[:3]:
        model.submit(prompt, 8)
    while model.live:
        model.plan()
        model.work(drafts_came=False)
        model.answer()
        model.check()
    assert model.outputs == want(3, 8)
    assert model.core.counters.num_drafts == 0


def test_rows_that_a_drafter_is_behind_with_go_on_without_drafts_and_are_counted():
    model = CoreModel(SD)
    model.submit((1, 2, 3), 30)
    serve(model, 3)
    model.drafter.num_slow = 2
    before = len(model.sent)
    serve(model, 4)
    ks = [row.num_draft_tokens for plan in model.sent[before:] for row in plan.rows]
    assert ks == [4, 0, 0, 4], "it says so of the first, and of the next; then it has caught up"
    counters = model.core.counters
    assert (counters.num_behind_rows, counters.num_stale_drafts) == (2, 0)
    model.run_dry()
    assert model.outputs["r0"] == continuation((1, 2, 3), 30)


def test_a_drafter_that_is_behind_has_one_plan_at_a_time_that_feeds_a_row():
    model = CoreModel(SD)
    model.submit((1, 2, 3), 30)
    serve(model, 3)
    model.drafter.num_slow = 2
    serve(model, 1)
    model.draft_answers.clear()
    for _ in range(4):  # the verifier waits for nothing
        model.plan()
        model.work()
        model.answer()
    assert len(model.draft_answers) == 1


def test_without_a_drafter_the_next_step_has_no_drafts_and_a_new_one_catches_up():
    model = CoreModel(PSD)
    for prompt in PROMPTS[:3]:
        model.submit(prompt, 20)
    serve(model, 6)
    model.lose_drafter()
    before = len(model.sent)
    serve(model, 5)
    assert all(row.num_draft_tokens == 0 for p in model.sent[before:] for row in p.rows)
    model.bring_drafter_up()
    before = len(model.sent)
    serve(model, 5)
    assert any(row.num_draft_tokens == 4 for p in model.sent[before:] for row in p.rows)
    model.run_dry()
    assert model.outputs == want(3, 20)


@pytest.mark.parametrize("num_steps", range(9))
def test_after_the_loss_of_the_verifier_every_stream_goes_on_where_it_was(num_steps):
    model = CoreModel(PSD)
    for prompt in PROMPTS[:5]:
        model.submit(prompt, 9)
    serve(model, num_steps)
    model.plan()
    model.work()  # an answer of the old session, still on its way
    held = {i: list(r.output_token_ids) for i, r in model.core.requests.items()}
    model.lose_verifier()
    assert list(model.core.plan()) == []
    assert {i: r.output_token_ids for i, r in model.core.requests.items()} == held
    assert {r.phase for r in model.core.requests.values()} <= {Phase.WAITING}
    model.bring_verifier_up()
    model.bring_drafter_up()
    model.plan()
    for index in range(len(model.old_answers)):
        model.answer_again(index)
    model.check()
    model.run_dry()
    assert model.outputs == want(5, 9)


# -- aborts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["waiting", "drafting", "drafted", "verifying", "ready"])
def test_an_abort_in_any_phase_gives_back_everything_once(when):
    model = CoreModel(PSD)
    for _ in range(2):
        model.submit((1, 2, 3), 20)
    if when != "waiting":
        serve(model, 4)
        model.plan()
    if when in {"drafted", "verifying", "ready"}:
        while model.draft_answers:
            model.draft_answer()
    first = model.oldest or 0
    last = 1 - first if model.flights else 0
    in_last = when in {"drafting", "drafted"}  # the first one's drafts are in already
    target = "r0" if when == "waiting" else members(model)[last if in_last else first][0]
    if when in {"verifying", "ready"}:
        model.work()
        model.begin()
    if when == "ready":
        model.answer()
    assert model.core.requests[RequestId(target)].phase.value == when
    model.abort(target)
    model.abort(target)
    model.check()
    model.run_dry()
    assert model.ended == {"r0": 1, "r1": 1}


def test_an_aborted_id_can_be_used_again_while_its_old_step_is_in_flight():
    model = CoreModel(PSD)
    core = model.core
    model.submit((1, 2, 3), 20)
    model.plan()
    model.abort("r0")
    core.submit(Request(RequestId("r0"), (4, 5), RowParams(), 3))
    model.work()
    result = model.answers.popleft()
    assert core.apply(result, model._keep) == []
    assert core.requests[RequestId("r0")].output_token_ids == []


def test_200_requests_with_aborts_in_every_phase_leave_nothing():
    model = CoreModel(PSD, num_blocks=20, max_waiting=200)
    for index in range(200):
        model.submit(PROMPTS[index % 9], 1 + index % 13)
        if index % 3 == 0:
            model.rotate(lambda row_id, k: row_id % (k + 1))
        if index % 4 == 0 and model.live:
            model.abort(list(model.live)[index % len(model.live)])
        model.check()
    model.run_dry()
    for request_id, output in model.outputs.items():
        index = int(request_id[1:])
        assert output == continuation(PROMPTS[index % 9], 1 + index % 13)
    assert model.core.counters.num_finished["abort"] > 40
    assert len(model.ended) == 200


# -- refusals -------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_names_its_length():
    core = Core(PSD, max_waiting=2)
    for index in range(2):
        core.submit(Request(RequestId(f"r{index}"), (1,), RowParams(), 1))
    with pytest.raises(QueueFullError, match=r"2 requests wait and 1 more.*is 2"):
        core.submit(Request(RequestId("r2"), (1,), RowParams(), 1))
    with pytest.raises(InvalidRequestError, match=r"sampling\.n is 3, want at most 2") as caught:
        core.check_capacity(3)  # not now and not later
    assert caught.value.field == "sampling.n"
    core.finish(RequestId("r0"), "abort")
    core.check_capacity(1)
    with pytest.raises(QueueFullError, match="2 more do not fit"):
        core.check_capacity(2)  # n = 2 counts twice


def test_a_live_id_is_refused_and_its_owner_unharmed():
    model = CoreModel(PSD)
    model.submit((1, 2), 5)
    with pytest.raises(DuplicateRequestError, match="'r0' is in use"):
        model.core.submit(Request(RequestId("r0"), (9,), RowParams(), 1))
    model.run_dry()
    assert model.outputs["r0"] == continuation((1, 2), 5)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Request(RequestId("r0"), (9,), RowParams(), 1), DuplicateRequestError),
        (Request(RequestId("s0"), (9,), RowParams(), 1), DuplicateRequestError),
        (Request(RequestId("s1"), (9,), RowParams(), 10**6), InvalidRequestError),
    ],
    ids=["in use", "twice", "too large"],
)
def test_of_the_samples_of_one_request_all_are_queued_or_none(last, error):
    model = CoreModel(PSD)
    model.submit((1, 2), 5)
    with pytest.raises(error):
        model.core.submit(Request(RequestId("s0"), (9,), RowParams(), 1), last)
    assert list(model.core.requests) == ["r0"]
    assert model.core.counters.num_requests == 1


def test_a_step_in_flight_of_a_closing_batch_ends_as_any_other():
    model = CoreModel(PSD)
    model.submit((1, 2), 5)
    model.submit((3, 4), 5)
    model.plan()
    model.abort("r1")
    model.core.set_mode(AR)
    assert model.core.batch_numbers == (0, 1)
    model.rotate()
    model.run_dry()
    assert model.core.batch_numbers == (0,)


def test_without_a_verifier_requests_wait():
    core = Core(PSD)
    core.submit(Request(RequestId("r0"), (1,), RowParams(), 1))
    assert list(core.plan()) == []
    assert (core.num_waiting, core.num_running, core.verifier_info) == (1, 0, None)


def answer_to(model: CoreModel, **changes) -> VerifyResult:
    """The answer to a step of r0 (4 drafts), with the first row changed."""
    model.submit((1, 2), 20)
    serve(model, 1)
    model.plan()
    model.work()
    (result,) = model.answers
    return replace(result, rows=(replace(result.rows[0], **changes), *result.rows[1:]))


@pytest.mark.parametrize(
    "changes",
    [
        {"base_len": 2},
        {"base_len": 4},
        {"token_ids": ()},
        {"token_ids": (1,)},
        {"num_accepted_tokens": 5},
        {"num_accepted_tokens": 3},
        {"token_ids": (1,) * 6, "num_accepted_tokens": 5, "num_draft_tokens": 5},
        {"row_id": 99},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_commits_and_counts_nothing(changes):
    model = CoreModel(SD)
    result = answer_to(model, **changes)
    before = model.core.counters.snapshot()
    request = model.core.requests[RequestId("r0")]
    length, steps = request.num_tokens, request.stats.num_steps
    with pytest.raises(ProtocolError):
        model.core.apply(result, model._keep)
    assert model.core.counters.snapshot() == before
    assert (request.num_tokens, request.stats.num_steps) == (length, steps)
    model.lose_verifier()  # what the engine does next
    model.bring_verifier_up()
    model.run_dry()
    assert model.outputs["r0"] == continuation((1, 2), 20)


def test_tokens_in_the_middle_of_a_prompt_are_refused():
    model = CoreModel(SD)
    model.submit(tuple(range(20)), 3)
    model.plan()
    flight = model.flights[0]
    row_id = flight.plan.rows[0].row_id
    bad = VerifyResult(flight.plan.step_id, 0, (RowResult(row_id, 20, (1,)),), StepTiming())
    with pytest.raises(ProtocolError, match=r"committed length is 20 \(prefilling\)"):
        model.core.apply(bad, model._keep)


def test_the_one_that_processes_die_of_is_found_among_all_and_takes_nobody_along():
    model = CoreModel(PSD)
    wanted = {model.submit((1, 2 + i), 9): (1, 2 + i) for i in range(7)}
    bad = "r3"
    num_deaths = 0
    while model.live:
        model.plan()
        if bad in model.flights[model.oldest].owners.values():
            num_deaths += 1
            model.lose_verifier(may_have_died=True)
            model.bring_verifier_up()
        else:
            model.work()
            model.answer()
    assert num_deaths == 3
    assert bad not in model.outputs
    for request_id, prompt in wanted.items():
        if request_id != bad:
            assert model.outputs[request_id] == continuation(prompt, 9)


# -- looking --------------------------------------------------------------------------------


def test_phases_and_batches_can_be_seen():
    model = CoreModel(PSD)
    for _ in range(3):
        model.submit((1, 2), 20)
    model.plan()
    assert [model.core.phases(b) for b in (0, 1)] == [{"prefilling": 2}, {"prefilling": 1}]
    serve(model, 2)
    model.plan()
    assert model.core.phases(0) == {"drafted": 2}
    model.work()
    model.begin()
    assert model.core.phases(0) == {"verifying": 2}
    assert model.core.phases(1) == {"drafting": 1}
    assert model.core.in_flight_step(0) == model.flights[0].plan.step_id
    assert model.core.num_running == 3
    assert model.core.blocks.num_used == sum(-(-(2 + 1 + 4) // BLOCK) for _ in range(3))


def test_plans_carry_the_wait_for_drafts_of_their_source():
    model = CoreModel(SD)
    model.submit((1, 2), 20)
    serve(model, 2)
    model.core.on_draft_result(
        DraftResult(model.sent[-1].step_id, 0, 4, 1, StepTiming(total_ns=2 * 10**8), epoch=1)
    )
    model.plan()
    assert (model.sent[-1].source, model.sent[-1].draft_timeout_ns) == (1, 12 * 10**8)
    model.rotate()
    model.core.set_mode(AR)
    model.plan()
    assert (model.sent[-1].source, model.sent[-1].draft_timeout_ns) == (0, 10**10)
