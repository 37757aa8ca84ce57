"""Which requests of the core step together, and with how many drafts."""

from __future__ import annotations

from dataclasses import replace

from minedraft.types import Mode, RequestId
from tests.core_model import CoreModel
from tests.plan_checks import BUDGET
from tests.worker_doubles import continuation

SD, PSD = Mode(1, 4, 4), Mode(2, 4, 4)
PROMPTS = [tuple(range(i, i + 1 + (i * 5) % 17)) for i in range(9)]


def serve(model: CoreModel, num_steps: int) -> None:
    for _ in range(num_steps):
        model.rotate()
        model.check()


def members(model: CoreModel) -> list[tuple[str, ...]]:
    return [model.core.batches.members(b) for b in range(model.core.mode.num_batches)]


def test_two_batches_take_turns():
    model = CoreModel(PSD)
    for prompt in PROMPTS[:4]:
        model.submit(prompt, 20)
    serve(model, 10)
    batches = [plan.batch for plan in model.sent if plan.rows]
    assert batches == [i % 2 for i in range(len(batches))]
    assert len(model.flights) == 1
    model.plan()
    assert len(model.flights) == 2, "the next step is planned while the other one is verified"


def test_one_request_alone_is_sequential_speculation():
    model = CoreModel(PSD)
    model.submit((1, 2), 20)
    serve(model, 3)
    assert {plan.batch for plan in model.sent if plan.rows} == {0}
    assert model.core.counters.num_drafts == 2


def test_the_first_fill_alternates_and_later_ones_join_the_batch_being_planned():
    model = CoreModel(PSD)
    for _ in range(4):
        model.submit((1, 2), 20)
    model.plan()
    assert members(model) == [("r0", "r2"), ("r1", "r3")]
    model.submit((1, 2), 20)
    model.plan()
    assert model.core.num_waiting == 1, "both batches are in flight"
    model.work()
    model.answer()  # batch 0: it is the one whose next step is planned
    model.plan()
    assert members(model) == [("r0", "r2", "r4"), ("r1", "r3")]
    model.abort("r1")
    model.abort("r3")
    model.submit((1, 2), 20)
    model.work()
    model.answer()  # batch 1, now empty; balance would say so too
    model.plan()
    assert members(model) == [("r0", "r2", "r4"), ("r5",)]
    model.work()
    model.answer()  # batch 0 again: r6 joins it, although batch 1 is smaller
    model.submit((1, 2), 20)
    table = model.core._table
    table.admit(0)
    assert model.core.batches.batch_of(RequestId("r6")) == 0


def test_of_two_idle_batches_the_smaller_one_takes_the_new_request():
    model = CoreModel(PSD)
    for _ in range(4):
        model.submit((1, 2), 20)
    model.plan()
    for _ in range(2):
        model.work()
        model.answer()
    model.abort("r1")
    model.submit((1, 2), 20)
    model.plan()
    assert members(model) == [("r0", "r2"), ("r3", "r4")]


def test_aborting_all_of_batch_0_lets_new_arrivals_refill_it():
    model = CoreModel(PSD, num_blocks=100)
    for _ in range(8):
        model.submit((1, 2, 3), 36)
    serve(model, 6)
    for request_id in members(model)[0]:
        model.abort(request_id)
    for _ in range(4):
        model.submit((1, 2, 3), 36)
    serve(model, 4)
    assert [len(batch) for batch in members(model)] == [4, 4]
    model.run_dry()
    assert len(model.outputs) == 8


def test_without_arrivals_an_empty_batch_is_refilled_from_the_other():
    model = CoreModel(PSD)
    for _ in range(8):
        model.submit((1, 2, 3), 36)
    serve(model, 6)
    for request_id in members(model)[0]:
        model.abort(request_id)
    serve(model, 3)
    assert [len(batch) for batch in members(model)] == [2, 2]


def test_a_request_with_a_step_in_flight_never_changes_its_batch():
    model = CoreModel(PSD)
    for _ in range(4):
        model.submit((1, 2), 20)
    model.plan()
    for request_id in members(model)[0]:
        model.abort(request_id)
    model.plan()
    assert members(model) == [(), ("r1", "r3")]


def test_k_up_and_down_under_load_stalls_nobody():
    model = CoreModel(PSD)
    for prompt in PROMPTS[:6]:
        model.submit(prompt, 20)
    seen = []
    for k in (4, 0, 4):
        model.core.set_mode(replace(PSD, num_draft_tokens=k))
        before = len(model.sent)
        serve(model, 6)
        plans = [p for p in model.sent[before:] if p.rows][2:]  # those planned before are out
        seen.append({row.num_draft_tokens for plan in plans for row in plan.rows})
    assert max(seen[0]) == max(seen[2]) == 4
    assert seen[1] == {0}
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPTS[i], 20) for i in range(6)}


def test_the_number_of_batches_changes_under_load():
    model = CoreModel(PSD, num_blocks=200)
    for prompt in PROMPTS[:6]:
        model.submit(prompt[:3], 36)
    serve(model, 4)
    seen = []
    for num_batches, size in ((1, 6), (3, 2), (2, 3), (1, 6)):
        model.core.set_mode(Mode(num_batches, size, 2))
        for _ in range(6):
            model.rotate(lambda _row_id, _k: 0)
            model.check()
        sizes = [model.core.batches.size(batch) for batch in model.core.batch_numbers]
        seen.append([size for size in sizes if size])
    assert seen == [[6], [2, 2, 2], [3, 3], [6]]
    assert model.core.counters.num_preemptions == 0
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPTS[i][:3], 36) for i in range(6)}


def test_fewer_slots_send_the_newest_back_to_the_queue_and_lose_nothing():
    model = CoreModel(PSD, num_blocks=200)
    for prompt in PROMPTS[:6]:
        model.submit(prompt[:3], 36)
    serve(model, 4)
    model.core.set_mode(Mode(1, 2, 4))
    for _ in range(4):
        model.rotate(lambda _row_id, _k: 0)
        model.check()
    assert model.core.batches.members(0) == ("r0", "r2")
    assert [r.request_id for r in model.core._table.waiting] == ["r1", "r3", "r4", "r5"]
    assert model.core.counters.num_preemptions == 4
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPTS[i][:3], 36) for i in range(6)}


def test_all_drafts_right_means_k_plus_one_tokens_a_step_after_k_was_zero():
    model = CoreModel(replace(SD, num_draft_tokens=0))
    model.submit((1, 2), 30)
    serve(model, 4)
    model.core.set_mode(SD)
    before = model.num_outputs
    serve(model, 3)
    assert model.num_outputs - before == 15


def test_who_sits_a_step_out_is_never_verified_with_old_drafts():
    model = CoreModel(PSD, num_blocks=7)
    for _ in range(4):
        model.submit((1, 2, 3), 15)
    while model.live:
        model.plan()
        stepping = {owner for flight in model.flights.values() for owner in flight.owners.values()}
        for flight in model.flights.values():
            assert set(flight.owners.values()) <= stepping
        model.work(lambda _row_id, _k: 1)
        model.answer()  # the double and the model hold every row to its committed length
        model.check()
    lengths = [len(plan.rows) for plan in model.sent if plan.rows]
    assert min(lengths) < max(lengths)


def test_the_prefill_budget_bounds_a_step_and_decoding_goes_on_beside_it():
    model = CoreModel(SD)
    model.submit((1, 2), 30)
    serve(model, 2)
    model.submit(tuple(range(20)), 5)
    serve(model, 4)
    feeds = [tuple(row.num_feed for row in plan.rows) for plan in model.sent if plan.rows]
    assert feeds[2:6] == [(1, BUDGET), (1, BUDGET), (1, 20 - 2 * BUDGET), (1, 1)]
