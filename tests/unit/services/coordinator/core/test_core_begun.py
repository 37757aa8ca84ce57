from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ProtocolError
from minedraft.services.coordinator.core.draft_source import MAX_MISSED_STEPS
from minedraft.types import Mode
from tests.core_model import CoreModel
from tests.worker_doubles import continuation

PROMPTS = [(1, 2 + i) for i in range(4)]


def both_in_flight() -> CoreModel:
    """Steps of both batches; the verifier may begin the younger one: its drafts come first."""
    model = CoreModel(Mode(2, 4, 4))
    for prompt in PROMPTS:
        model.submit(prompt, 20)
    for _ in range(4):
        model.rotate()
        model.check()
    model.plan()
    assert set(model.flights) == {0, 1}
    return model


def test_the_step_that_began_is_marked_owed_and_blamed_not_the_oldest_one():
    model = both_in_flight()
    older, younger = model.oldest, 1 - model.oldest
    steps = {batch: flight.plan.step_id for batch, flight in model.flights.items()}
    assert model.core.owed_by_verifier == steps[older], "it has said of none"
    while model.draft_answers:
        model.draft_answer()
    model.work(pick=1)
    model.begin()
    model.check()
    assert model.core.phases(younger) == {"verifying": 2}
    assert model.core.phases(older) == {"drafted": 2}
    assert model.core.owed_by_verifier == steps[younger]
    assert model.core.oldest_step == steps[older]
    victims = set(model.core.batches.members(younger))
    model.fail_verifier()
    counts = {r.request_id: r.num_failed_steps for r in model.core.requests.values()}
    assert counts == {request_id: int(request_id in victims) for request_id in counts}
    model.bring_verifier_up()
    model.run_dry()
    assert model.outputs == {f"r{i}": continuation(p, 20) for i, p in enumerate(PROMPTS)}


def test_of_two_that_began_the_first_is_to_blame_until_it_is_answered():
    model = both_in_flight()
    older, younger = model.oldest, 1 - model.oldest
    for pick in (1, 0):
        model.work(pick=pick)
        model.begin()
    assert model.order == [younger, older]
    model.answer()
    model.check()
    victims = set(model.core.batches.members(older))
    assert model.core.owed_by_verifier == model.flights[older].plan.step_id
    model.fail_verifier()
    blamed = {r.request_id for r in model.core.requests.values() if r.num_failed_steps}
    assert blamed == victims


@pytest.mark.parametrize("is_other_said_first", [False, True])
def test_an_answer_that_makes_no_sense_says_which_step_failed_whatever_was_said(
    is_other_said_first,
):
    model = both_in_flight()
    younger = 1 - model.oldest
    if is_other_said_first:
        model.work()
        model.begin()
    model.work(pick=1)
    result = model.answers[-1]
    with pytest.raises(ProtocolError):
        model.core.apply(replace(result, rows=()), model._keep)
    assert model.core.owed_by_verifier == model.flights[younger].plan.step_id


def test_a_note_of_a_step_that_was_never_planned_is_refused_and_a_repeat_is_not_heard():
    model = both_in_flight()
    model.work()
    (note,) = model.notes
    for step_id in (0, note.step_id + 100):
        with pytest.raises(ProtocolError, match=f"step_id={step_id}"):
            model.core.on_step_begun(replace(note, step_id=step_id))
    model.core.on_step_begun(replace(note, batch=7))
    model.core.on_step_begun(replace(note, batch=1 - note.batch))
    model.check()
    for _ in range(2):
        model.core.on_step_begun(note)
    assert model.core._verifying.begun == [note.batch]


@pytest.mark.parametrize("is_late", [True, False], ids=["late", "lost"])
def test_a_source_whose_drafts_come_late_keeps_its_link_one_whose_drafts_are_lost_does_not(is_late):
    model = CoreModel(Mode(1, 4, 3))
    model.submit((1, 2, 3), 30)
    model.rotate()
    for _ in range(MAX_MISSED_STEPS):
        model.plan()
        model.work(drafts_came=False)
        if is_late:  # their time is up, and then the drafter is done
            model.begin()
        model.draft_answer()
        model.answer()
        model.check()
    assert [source.source_id for source in model.core.sources.broken] == ([] if is_late else [1])
