from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.plans import DraftResult, DraftRowResult, StepTiming
from minedraft.services.coordinator.core.draft_source import (
    MAX_MISSED_STEPS,
    TRANSITIONS,
    DraftSource,
    Event,
    Place,
    State,
)
from minedraft.types import ModelInfo, RowId

MODEL = ModelInfo("m", 50, 100, "f", "float32", drafter_kind="model")
S, E = State, Event
ALLOWED = {
    (S.LINKING, E.SERVE, S.SERVING),
    (S.LINKING, E.WARM_UP, S.WARMING),
    (S.WARMING, E.CATCH_UP, S.WARM),
    (S.WARM, E.FALL_BEHIND, S.WARMING),
    (S.WARM, E.TAKE_OVER, S.SERVING),
    (S.SERVING, E.MISS, S.SUSPECT),
    (S.SERVING, E.BREAK, S.BROKEN),
    (S.SERVING, E.REPLACE, S.LEAVING),
    (S.SUSPECT, E.HEAR, S.SERVING),
    (S.SUSPECT, E.BREAK, S.BROKEN),
    (S.SUSPECT, E.REPLACE, S.LEAVING),
    *((state, E.END, S.GONE) for state in S if state is not S.GONE),
}
WAYS = {
    S.LINKING: (),
    S.WARMING: (E.WARM_UP,),
    S.WARM: (E.WARM_UP, E.CATCH_UP),
    S.SERVING: (E.SERVE,),
    S.SUSPECT: (E.SERVE, E.MISS),
    S.BROKEN: (E.SERVE, E.BREAK),
    S.LEAVING: (E.SERVE, E.REPLACE),
    S.GONE: (E.END,),
}
"""How a source comes to each state."""


def source_in(state: State) -> DraftSource:
    source = DraftSource(7, MODEL)
    for event in WAYS[state]:
        source.advance(event)
    assert source.state is state
    return source


def answer(step_id: int, num_behind: int = 0) -> DraftResult:
    rows = tuple(DraftRowResult(RowId(i), 9, is_behind=True) for i in range(1, num_behind + 1))
    return DraftResult(step_id, 0, 4, 1, StepTiming(), 7, rows=rows)


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_the_table_allows_exactly_what_is_written_here(state, event):
    source = source_in(state)
    targets = {target for at, what, target in ALLOWED if (at, what) == (state, event)}
    if targets:
        source.advance(event)
        assert {source.state} == targets
    else:
        with pytest.raises(StateError, match=f"source 7: {event.name} is not .* {state.name}"):
            source.advance(event)
        assert source.state is state


def test_every_state_is_reached_and_only_the_end_has_no_way_out():
    reached = {target for row in TRANSITIONS.values() for target in row.values()}
    assert reached | {State.LINKING} == set(State)
    assert [state for state, row in TRANSITIONS.items() if not row] == [State.GONE]


def test_what_may_be_asked_of_each_state():
    seen = {
        state: (s.is_linked, s.is_warming, s.is_warm, s.is_in_place, s.is_able)
        for state in State
        for s in (source_in(state),)
    }
    yes, no = True, False
    assert seen == {
        S.LINKING: (no, no, no, no, no),
        S.WARMING: (yes, yes, no, no, no),
        S.WARM: (yes, yes, yes, no, no),
        S.SERVING: (yes, no, no, yes, yes),
        S.SUSPECT: (yes, no, no, yes, no),
        S.BROKEN: (yes, no, no, no, no),
        S.LEAVING: (yes, no, no, no, no),
        S.GONE: (no, no, no, no, no),
    }
    assert [state for state in State if source_in(state).is_broken] == [S.BROKEN]
    assert [state for state in State if source_in(state).is_gone] == [S.GONE]


def test_it_is_named_by_the_model_that_drafts():
    assert source_in(S.SERVING).kind == "model"


def test_it_is_warm_once_its_own_plan_left_nobody_behind():
    source = source_in(S.WARMING)
    source.feed(7)
    assert source.owed_step == 7
    assert source.answered(answer(6)) is False, "another plan"
    assert (source.owed_step, source.is_warm) == (7, False)
    assert source.answered(answer(7, num_behind=1)) is True
    assert (source.owed_step, source.is_warm, source.is_behind) == (0, False, True)
    source.feed(8)
    assert source.answered(answer(8)) is True
    assert (source.owed_step, source.is_warm, source.is_behind) == (0, True, False)


def test_a_warm_one_falls_behind_and_catches_up_again():
    source = source_in(S.WARM)
    source.feed(3)
    assert source.is_warm
    source.answered(answer(3, num_behind=2))
    assert not source.is_warm
    source.caught_up()
    assert (source.is_warm, source.is_behind) == (True, False)
    source.caught_up()
    assert source.is_warm


def test_one_that_takes_over_owes_nothing_any_more():
    source = source_in(S.WARM)
    source.feed(3)
    source.take_over()
    assert source.owed_step == 0
    assert source.answered(answer(3)) is False


def miss(
    source: DraftSource,
    step_id: int = 1,
    *,
    answered: bool,
    num_missing: int = 2,
    began_early: bool = False,
) -> None:
    source.verified(
        step_id,
        has_answered=answered,
        began_early=began_early,
        num_rows=2,
        num_missing=num_missing,
    )


def test_who_is_waited_for_in_vain_owes_until_it_is_heard_of():
    source = source_in(S.SERVING)
    miss(source, 5, answered=False)
    miss(source, 6, answered=False)
    assert (source.state, source.owed_step) == (S.SUSPECT, 5), "the same drafts"
    assert source.trouble == "drafts of step 5 did not come in time; no answer since"
    source.answered(answer(5))
    assert (source.state, source.owed_step, source.trouble) == (S.SERVING, 0, "")
    miss(source, 9, answered=False)
    assert source.owed_step == 9


def test_a_few_steps_in_a_row_whose_drafts_did_not_arrive_though_it_said_so_are_too_many():
    source = source_in(S.SERVING)
    for _ in range(MAX_MISSED_STEPS - 1):
        miss(source, answered=True)
    assert source.is_able
    miss(source, answered=True)
    assert source.is_broken
    assert source.trouble == (
        "drafts of 3 steps in a row did not reach the verifier, "
        "though the drafter said that it had sent them"
    )
    assert not source.has_drafted


def test_drafts_that_arrive_make_it_begin_to_count_anew():
    source = source_in(S.SERVING)
    for _ in range(5):
        for _ in range(MAX_MISSED_STEPS - 1):
            miss(source, answered=True)
        miss(source, answered=True, num_missing=1)
    assert source.is_able
    assert source.has_drafted


def test_steps_that_it_did_not_answer_do_not_count_as_lost_drafts():
    """A stopped process has as many in flight as there are batches, and is as good as before."""
    source = source_in(S.SERVING)
    for step_id in range(1, 9):
        miss(source, step_id, answered=False)
    assert source.state is S.SUSPECT


def test_drafts_that_are_late_are_not_lost():
    source = source_in(S.SERVING)
    for step_id in range(1, 9):
        miss(source, step_id, answered=True, began_early=True)
    assert source.is_able, "it catches up: to form its link anew would begin that anew"


def test_a_suspect_whose_earlier_drafts_were_lost_too_is_broken():
    source = source_in(S.SERVING)
    miss(source, answered=False)
    for _ in range(MAX_MISSED_STEPS):
        miss(source, answered=True)
    assert (source.is_broken, source.owed_step) == (True, 0)


@pytest.mark.parametrize("state", [S.LINKING, S.WARMING, S.WARM, S.LEAVING, S.GONE])
def test_one_that_does_not_draft_is_neither_suspected_nor_broken(state):
    source = source_in(state)
    for answered in (False, True, True, True, True):
        miss(source, answered=answered)
    assert source.state is state


def test_drafts_made_at_the_verifier_cannot_be_late():
    source = DraftSource(7, MODEL, Place.VERIFIER)
    source.serve()
    for answered in (False, True, True, True, True):
        miss(source, answered=answered)
    assert source.is_able


@pytest.mark.parametrize("state", State)
def test_any_life_may_end_and_once_more_is_fine(state):
    source = source_in(state)
    source.end()
    source.end()
    assert (source.is_gone, source.owed_step) == (True, 0)
