"""The core under `auto`: who is asked for a price, and what a shape does to plans."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.plans import DraftPlan
from minedraft.services.coordinator.core.shaper import CATCH_UP_STEPS, PROBE_STEPS
from minedraft.services.coordinator.core.shapes import Shape
from minedraft.types import Mode
from tests.core_model import CoreModel
from tests.worker_doubles import continuation

AUTO = Mode(2, 4, 4, "auto")
PROMPT = (1, 2, 3)


class FlatCosts:
    """Memory-bound: two batches gain nothing."""

    def verify_ns(self, _num_tokens, _num_rows, _context, *, overlapped):
        return 100.0

    def draft_ns(self, _rows_per_depth, _num_catch_up_tokens, _context, *, overlapped):
        return 80.0


def started(mode=AUTO, num_requests=8, max_tokens=36):
    model = CoreModel(mode, num_blocks=200)
    for _ in range(num_requests):
        model.submit(PROMPT, max_tokens)
    return model


def serve(model, num_steps, *, accepted=0):
    for _ in range(num_steps):
        model.rotate(lambda _row_id, k: min(k, accepted))
        model.check()


@pytest.mark.parametrize(
    ("accepted", "want", "sizes"), [(0, Shape(1, 0), [8]), (1, Shape(1, 4), [8])]
)
def test_the_shape_that_pays_is_taken_while_requests_run(accepted, want, sizes):
    model = started()
    model.core.shaper._costs = FlatCosts()
    serve(model, 14, accepted=accepted)
    assert model.core.shaper.num_accepted is None, "64 rows are not there yet"
    assert model.core.shaper.shape == Shape(2, 4)
    serve(model, 14, accepted=accepted)
    assert model.core.shaper.shape == want
    assert (model.core.counters.num_shape_switches, model.core.counters.num_moves) == (1, 4)
    batches = model.core.batches
    assert [batches.size(b) for b in batches.numbers if batches.size(b)] == sizes
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPT, 36) for i in range(8)}


def test_a_load_is_what_runs_not_what_waits():
    model = started(num_requests=10)
    model.plan()
    load = model.core._planner._load()
    assert (load.num_requests, load.context) == (8, 24)
    assert load.rows_per_depth == (8, 8, 8, 8)


def test_callers_that_ask_for_less_count_as_that():
    model = CoreModel(AUTO)
    for k in (None, 0, 2, 7):
        model.submit(PROMPT, 9, k)
    model.plan()
    assert model.core._planner._load().rows_per_depth == (3, 3, 2, 2)
    model.reshape(1, 0)
    model.run_dry()


def drafted(model):
    """Rows that lack committed tokens when the next draft plan comes: how many each lacks."""
    double = model.drafter
    known = {row_id: len(row.history) for row_id, row in double.rows.items()}
    return {
        request.num_tokens - known.get(request.row_id, 0)
        for request in model.core.requests.values()
        if request.row_id
    }


def test_in_plain_decoding_drafters_hear_of_all_tokens_every_sixteen_steps():
    model = started(num_requests=3)
    serve(model, 4)
    model.reshape(1, 0)
    serve(model, 1)
    before = len(model.sent)
    catch_ups = []
    for step in range(2 * CATCH_UP_STEPS):
        serve(model, 1)
        if drafted(model) <= {0, 1}:
            catch_ups.append(step)
        assert max(drafted(model)) <= CATCH_UP_STEPS + 2
    assert len(model.sent) - before == 2 * CATCH_UP_STEPS
    assert len(catch_ups) in {2, 3, 4}
    model.reshape(2, 4)
    serve(model, 3)
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPT, 36) for i in range(3)}


def test_a_request_that_begins_in_plain_decoding_is_opened_at_the_drafter_by_a_catch_up():
    model = CoreModel(AUTO, num_blocks=200)
    model.reshape(1, 0)
    model.submit(PROMPT, 36)
    serve(model, 2)
    assert model.drafter.rows == {}
    serve(model, CATCH_UP_STEPS)
    assert len(model.drafter.rows) == 1


def test_a_drafter_that_owes_a_catch_up_gets_no_second_one():
    model = started(num_requests=2)
    serve(model, 4)
    model.reshape(1, 0)
    for _ in range(CATCH_UP_STEPS + 2):
        model.rotate(drafts_in=False)
    (owed,) = model.catch_ups.values()
    (source,) = model.core.sources
    assert source.owed_step == owed
    before = len(model.draft_answers)
    for _ in range(CATCH_UP_STEPS):
        model.rotate(drafts_in=False)
        model.check()
    assert len(model.draft_answers) == before
    while model.draft_answers:
        model.draft_answer()
    assert source.owed_step == 0
    model.run_dry()


@pytest.mark.parametrize("num_spare", [0, 1])
def test_plans_are_wide_while_nothing_is_drafted_and_the_verifier_has_spare_threads(num_spare):
    model = started(num_requests=2, max_tokens=20)
    model.core._verifier = replace(model.core._verifier, num_spare_threads=num_spare)
    serve(model, 4)
    model.reshape(1, 0, is_wide=True)
    serve(model, 2)  # those planned before are out
    before = len(model.sent)
    serve(model, 4)
    model.reshape(2, 4)
    serve(model, 2)
    wide = [plan.is_wide for plan in model.sent[before:] if plan.rows]
    assert wide[:4] == [num_spare > 0] * 4
    assert not wide[-1]
    assert not any(plan.is_wide for plan in model.sent if plan.source)
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(PROMPT, 20) for i in range(2)}


# -- drawing ahead --------------------------------------------------------------------------


def draft_plans(model: CoreModel) -> list[DraftPlan]:
    """Draft plans that leave from now on."""
    plans: list[DraftPlan] = []
    plan = model.core.plan

    def watched():
        for draft, verify in plan():
            if draft is not None:
                plans.append(draft)
            yield draft, verify

    model.core.plan = watched
    return plans


@pytest.mark.parametrize(("num_batches", "num_requests", "may"), [(1, 3, True), (2, 1, True),
                                                                 (2, 2, False)])  # fmt: skip
def test_a_drafter_draws_ahead_where_its_drafts_hide_behind_nothing(num_batches, num_requests, may):
    model = started(num_requests=num_requests)
    model.reshape(num_batches, 4)
    serve(model, 6)
    plans = draft_plans(model)
    serve(model, 4)
    said = {plan.may_run_ahead for plan in plans if any(r.num_draft_tokens for r in plan.rows)}
    assert said == {may}


def test_nothing_is_drawn_ahead_on_cores_that_are_lent():
    model = started(num_requests=2)
    model.core._verifier = replace(model.core._verifier, num_spare_threads=1)
    model.reshape(1, 4)
    serve(model, 4)
    plans = draft_plans(model)
    serve(model, 2)
    assert plans[-1].may_run_ahead
    model.reshape(1, 0, is_wide=True)
    plans.clear()
    serve(model, 4)
    assert [(plan.rows, plan.may_run_ahead) for plan in plans] == [((), False)], "told once"


def test_rows_that_end_do_not_stop_what_is_drawn_ahead_of_others():
    model = started(num_requests=2)
    model.reshape(1, 4)
    serve(model, 4)
    model.plan()
    plans = draft_plans(model)
    model.abort("r0")
    serve(model, 1)
    closes = [plan for plan in plans if plan.closes and not plan.rows]
    assert all(plan.may_run_ahead for plan in [*closes, *plans])


def test_a_probe_in_plain_decoding_draws_nothing_ahead():
    model = started(num_requests=1)
    serve(model, 4)
    model.reshape(1, 0)
    model.core.shaper._num_plain = PROBE_STEPS - 3
    plans = draft_plans(model)
    serve(model, 5)
    drafting = [plan for plan in plans if any(r.num_draft_tokens for r in plan.rows)]
    assert drafting
    assert not any(plan.may_run_ahead for plan in drafting)
