from __future__ import annotations

import pytest

from minedraft.plans import DraftResult, StepTiming
from minedraft.services.coordinator.core.drafters import Drafters
from minedraft.types import ModelInfo


def model(name: str) -> ModelInfo:
    return ModelInfo(name, 50, 100, "f", "float32")


def note(epoch: int, step_id: int = 1, num_behind: int = 0) -> DraftResult:
    return DraftResult(step_id, 0, 4, 1, StepTiming(), epoch, num_behind)


def serving(*epochs: int) -> Drafters:
    drafters = Drafters()
    for epoch in epochs:
        drafters.serve(model(f"m{epoch}"), epoch)
    return drafters


def places(drafters: Drafters, num_batches: int = 3) -> list[int]:
    return [drafters.of_batch(batch)[0] for batch in range(num_batches)]


def test_without_a_drafter_nobody_drafts():
    assert Drafters().of_batch(0) == (0, None)
    assert Drafters().newest == 0
    assert Drafters().epochs == ()


def test_batches_go_round_the_serving_drafters():
    assert places(serving(3, 5)) == [3, 5, 3]
    assert places(serving(3)) == [3, 3, 3]
    assert serving(3, 5).of_batch(1) == (5, model("m5"))


def test_batches_move_when_a_drafter_is_dropped():
    drafters = serving(1, 2)
    drafters.drop(1)
    assert places(drafters) == [2, 2, 2]
    drafters.drop(2)
    assert places(drafters) == [0, 0, 0]
    drafters.drop(2)  # unknown by now


def test_nobody_waits_twice_for_a_suspect_until_it_is_heard_of():
    drafters = serving(1, 2)
    drafters.suspect(1)
    assert places(drafters) == [2, 2, 2]
    drafters.suspect(2)
    assert places(drafters) == [0, 0, 0]
    assert drafters.took(note(1)) is False
    assert places(drafters) == [1, 1, 1]
    drafters.took(note(2))
    assert places(drafters) == [1, 2, 1], "everybody has his old place"


def test_suspicion_does_not_outlive_the_link():
    drafters = serving(1)
    drafters.suspect(1)
    drafters.drop(1)
    drafters.serve(model("again"), 1)
    assert places(drafters) == [1, 1, 1]


def test_one_that_does_not_serve_cannot_be_suspected():
    drafters = Drafters()
    drafters.warm_up(model("w"), 4)
    drafters.suspect(4)
    drafters.suspect(0)
    drafters.cut_over(0, 4)
    assert places(drafters) == [4, 4, 4]


def test_a_warming_drafter_drafts_for_nobody():
    drafters = serving(1)
    drafters.warm_up(model("w"), 2)
    assert places(drafters) == [1, 1, 1]
    assert drafters.epochs == (1, 2)
    assert drafters.newest == 1


def test_it_is_warm_once_its_own_plan_left_nobody_behind():
    drafters = serving(1)
    drafters.warm_up(model("w"), 2)
    drafters.warming[2].step_id = 7
    assert not drafters.is_warm(2)
    assert drafters.took(note(2, step_id=6)) is False, "another plan"
    assert drafters.took(note(1, step_id=7)) is False, "another drafter"
    assert drafters.warming[2].step_id == 7
    assert drafters.took(note(2, step_id=7, num_behind=1)) is True
    assert (drafters.is_warm(2), drafters.warming[2].is_behind) == (False, True)
    drafters.warming[2].step_id = 8
    assert drafters.took(note(2, step_id=8)) is True
    assert (drafters.is_warm(2), drafters.warming[2].is_behind) == (True, False)
    assert drafters.warming[2].step_id == 0


def test_the_new_one_takes_the_place_of_the_old_one_and_nobody_else_moves():
    drafters = serving(1, 2, 3)
    drafters.warm_up(model("w"), 9)
    drafters.cut_over(2, 9)
    assert places(drafters) == [1, 9, 3]
    assert drafters.of_batch(1) == (9, model("w"))
    assert drafters.warming == {}
    assert drafters.newest == 9


def test_without_an_old_one_it_serves_beside_the_others():
    drafters = serving(1)
    drafters.warm_up(model("w"), 2)
    drafters.cut_over(0, 2)
    assert places(drafters) == [1, 2, 1]


def test_only_a_warming_one_can_take_over():
    drafters = serving(1)
    with pytest.raises(KeyError):
        drafters.cut_over(1, 5)
    assert places(drafters) == [1, 1, 1]


def test_a_warming_one_that_is_lost_is_forgotten():
    drafters = serving(1)
    drafters.warm_up(model("w"), 2)
    drafters.drop(2)
    assert drafters.epochs == (1,)
    assert not drafters.is_warm(2)
    assert drafters.took(note(2)) is False


def test_who_is_waited_for_in_vain_owes_until_it_is_heard_of():
    drafters = serving(1, 2)
    assert drafters.owed(1) == 0
    drafters.suspect(1)
    first = drafters.owed(1)
    drafters.suspect(1)
    assert drafters.owed(1) == first > 0, "the same drafts"
    assert drafters.owed(2) == 0
    drafters.took(note(1))
    assert drafters.owed(1) == 0
    drafters.suspect(1)
    assert drafters.owed(1) > first
    drafters.drop(1)
    assert drafters.owed(1) == 0


def test_a_warming_one_owes_the_step_it_was_given():
    drafters = serving(1)
    drafters.warm_up(model("w"), 2)
    assert drafters.owed(2) == 0
    drafters.warming[2].step_id = 7
    assert drafters.owed(2) == 7
