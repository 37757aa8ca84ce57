"""Several drafters, warm-up and cut-over; the core machine covers the rest of planning."""

from __future__ import annotations

from dataclasses import replace

from minedraft.plans import DraftResult, StepTiming
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource, Place
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.types import Mode, ModelInfo, RequestId, RowParams
from tests.core_model import CoreModel
from tests.worker_doubles import VOCAB, VerifierDouble, continuation

MODE = Mode(2, 4, 4)


def nothing(_row_id: int, _k: int) -> int:
    """No draft is right: requests live long."""
    return 0


def busy(mode: Mode = MODE, num_requests: int = 4, **options) -> CoreModel:
    """A model with one drafter whose requests all decode."""
    model = CoreModel(mode, **options)
    for i in range(num_requests):
        model.submit((i + 1,), 30)
    for _ in range(6):
        model.rotate(nothing)
    assert all(r.phase is not Phase.PREFILLING for r in model.core.requests.values())
    return model


def drafted_by(model: CoreModel, num_steps: int = 6) -> set[int]:
    """Epochs whose drafts the next steps wait for."""
    model.sent.clear()
    for _ in range(num_steps):
        model.rotate(nothing)
        model.check()
    return {plan.source for plan in model.sent if plan.rows}


def finish(model: CoreModel) -> None:
    model.run_dry()
    for i, output in enumerate(model.outputs[f"r{i}"] for i in range(len(model.outputs))):
        assert output == continuation((i + 1,), 30)


def test_two_drafters_draft_for_a_batch_each():
    model = busy()
    second = model.add_drafter()
    model.sent.clear()
    for _ in range(6):
        model.rotate(nothing)
    assert {(plan.batch % 2, plan.source) for plan in model.sent if plan.rows} == {
        (0, 1),
        (1, second),
    }
    finish(model)


def test_batches_of_a_lost_drafter_move_to_the_other():
    model = busy()
    second = model.add_drafter()
    drafted_by(model)
    model.drop_drafter(1)
    drafted_by(model)  # what was in flight
    assert drafted_by(model) == {second}
    finish(model)


def test_a_drafter_whose_drafts_did_not_come_is_not_waited_for_again_until_it_speaks():
    model = busy()
    second = model.add_drafter()
    drafted_by(model)
    while model.draft_answers:
        model.draft_answer()
    model.plan()
    late = [plan.source for plan in model.sent if plan.rows][-1]
    while model.answers or model.flights:
        if not model.answers:
            model.work(nothing, drafts_came=False)
        model.answer()
    assert model.suspects
    assert late in model.suspects
    suspects = set(model.suspects)
    model.sent.clear()
    model.plan()
    assert not suspects & {plan.source for plan in model.sent if plan.rows}
    while model.draft_answers:
        model.draft_answer()
    assert not model.suspects
    drafted_by(model)
    assert drafted_by(model) == {1, second}
    finish(model)


def test_a_warming_drafter_is_told_of_everybody_and_drafts_for_nobody():
    model = busy()
    new = model.warm_up()
    assert not model.sources[new].is_warm
    model.plan()
    assert set(model.doubles[new].rows) == {r.row_id for r in model.core.requests.values()}
    while model.draft_answers:
        model.draft_answer()
    assert model.sources[new].is_warm
    assert drafted_by(model) == {1}
    finish(model)


def test_one_that_is_behind_is_told_again_until_it_has_caught_up():
    model = busy()
    new = model.warm_up(num_slow=2)
    for _ in range(2):
        model.plan()
        while model.draft_answers:
            model.draft_answer()
        assert not model.sources[new].is_warm
    model.plan()
    while model.draft_answers:
        model.draft_answer()
    assert model.sources[new].is_warm
    finish(model)


def test_with_nobody_to_tell_of_it_is_warm_at_once():
    model = CoreModel(MODE)
    new = model.warm_up()
    model.plan()
    assert model.sources[new].is_warm


def test_after_the_cut_over_steps_in_flight_still_get_their_drafts_from_the_old_one():
    model = busy()
    new = model.warm_up()
    model.plan()
    while model.draft_answers:
        model.draft_answer()
    assert model.core.uses(model.sources[1])
    model.cut_over(1, new)
    model.check()
    assert model.core.uses(model.sources[1])
    while model.core.uses(model.sources[1]):
        model.rotate(nothing)
        model.check()
    model.drop_drafter(1)
    assert drafted_by(model) == {new}
    finish(model)


def test_the_old_one_is_told_of_rows_that_end_until_it_is_dropped():
    model = busy()
    new = model.warm_up()
    drafted_by(model)
    model.cut_over(1, new)
    while model.core.uses(model.sources[1]):
        model.rotate(nothing)
    for request_id in list(model.live):
        model.abort(request_id)
    model.rotate(nothing)
    while model.flights:
        model.rotate(nothing)
    model.plan()
    assert model.doubles[1].rows == model.doubles[new].rows == {}


def test_a_warming_drafter_that_is_lost_changes_nothing():
    model = busy()
    new = model.warm_up()
    model.plan()
    model.drop_drafter(new)
    assert model.sources[new].is_gone
    assert drafted_by(model) == {1}
    finish(model)


def test_a_source_at_the_verifier_gets_no_plans_and_its_steps_name_it():
    core, verifier = Core(MODE), VerifierDouble(num_blocks=60)
    core.verifier_up(verifier.info)
    source = DraftSource(7, ModelInfo("n-gram", VOCAB, 200, "f", "float32"), Place.VERIFIER)
    core.serve(source)
    request = Request(RequestId("r"), (1, 2, 3), RowParams(), 12)
    core.submit(request)
    named = set()
    while core.requests:
        for draft, verify in core.plan():
            assert draft is None
            named.add((verify.source, any(row.num_draft_tokens for row in verify.rows)))
            verifier.receive(verify)
        result = verifier.run(drafts_came=len(named) > 1)
        core.apply(result, lambda _request, row: Kept(len(row.token_ids)))
        if request.num_tokens == request.max_len:
            core.finish(request.request_id, "length")
    assert named == {(0, False), (7, True)}
    assert request.output_token_ids == continuation((1, 2, 3), 12)
    assert source.is_able


def test_what_a_drafter_says_of_anothers_step_is_not_believed():
    model = busy(Mode(1, 4, 4))
    liar = model.add_drafter()
    model.plan()
    (note,) = model.draft_answers
    assert note.epoch != liar
    model.core.on_draft_result(replace(note, epoch=liar))
    drafting = [r for r in model.core.requests.values() if r.phase is Phase.DRAFTING]
    assert drafting
    model.draft_answer()
    assert not [r for r in drafting if r.phase is Phase.DRAFTING]
    finish(model)


def test_drafts_are_waited_for_while_their_source_drafts_for_other_batches_before():
    model = CoreModel(Mode(4, 1, 4))
    for _ in range(4):
        model.submit((1, 2), 20)
    model.plan()
    for _ in range(4):  # the prompts
        model.draft_answer()
        model.work()
        model.answer()
    timing = StepTiming(total_ns=2 * 10**8)
    model.core.on_draft_result(DraftResult(model.sent[-1].step_id, 0, 4, 1, timing, epoch=1))
    model.plan()
    steps = [plan for plan in model.sent if plan.source]
    assert [plan.draft_timeout_ns for plan in steps] == [
        (6 + num_ahead) * timing.total_ns for num_ahead in range(4)
    ]
    model.draft_answer()
    assert model.core._planner._num_ahead(model.core._table.in_flight[3]) == 2, "one is drafted"
