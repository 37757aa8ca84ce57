from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.plans import DraftResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.sources import Sources
from minedraft.services.coordinator.core.step import Step
from minedraft.types import ModelInfo, RowId


def model(name: str) -> ModelInfo:
    return ModelInfo(name, 50, 100, "f", "float32")


class Told:
    """Sources, by number."""

    def __init__(self, *serving: int) -> None:
        self.all = Sources()
        self.by_id: dict[int, DraftSource] = {}
        for number in serving:
            self.all.serve(self.begin(number))

    def begin(self, number: int) -> DraftSource:
        self.by_id[number] = DraftSource(number, model(f"m{number}"))
        return self.by_id[number]

    def warm(self, number: int) -> DraftSource:
        source = self.begin(number)
        self.all.warm_up(source)
        source.caught_up()
        return source

    def drop(self, number: int) -> None:
        self.all.drop(self.by_id[number])

    def suspect(self, number: int) -> None:
        """A step waited for it in vain."""
        self.verified(number, num_missing=1)

    def verified(self, number: int, *, num_missing: int, is_drafted: bool = False) -> None:
        step = Step(
            step_id=9,
            batch=0,
            requests={},
            num_scheduled_tokens=2,
            num_draft_tokens={RowId(1): 4, RowId(2): 0},
            source=number,
            is_drafted=is_drafted,
        )
        self.all.verified(step, VerifyResult(9, 0, (), StepTiming(), num_missing))

    def hear(self, number: int) -> bool:
        return self.all.answered(DraftResult(1, 0, 4, 1, StepTiming(), number))

    def places(self, num_batches: int = 3) -> list[int]:
        found = [self.all.of_batch(batch) for batch in range(num_batches)]
        return [source.source_id if source else 0 for source in found]


def test_without_a_source_nobody_drafts():
    assert Sources().of_batch(0) is None
    assert Sources().newest == 0
    assert list(Sources()) == []


def test_batches_go_round_the_serving_sources():
    assert Told(3, 5).places() == [3, 5, 3]
    assert Told(3).places() == [3, 3, 3]


def test_batches_move_when_a_source_is_dropped():
    told = Told(1, 2)
    told.drop(1)
    assert told.places() == [2, 2, 2]
    told.drop(2)
    assert told.places() == [0, 0, 0]
    told.drop(2)  # once more is fine
    assert told.by_id[2].is_gone


def test_nobody_waits_twice_for_a_suspect_until_it_is_heard_of():
    told = Told(1, 2)
    told.suspect(1)
    assert told.places() == [2, 2, 2]
    told.suspect(2)
    assert told.places() == [0, 0, 0]
    assert told.hear(1) is False
    assert told.places() == [1, 1, 1]
    told.hear(2)
    assert told.places() == [1, 2, 1], "everybody has his old place"


def test_a_step_of_a_source_that_is_not_there_says_nothing():
    told = Told(1)
    told.suspect(7)
    told.verified(0, num_missing=1)
    assert told.hear(7) is False
    assert told.places() == [1, 1, 1]


def test_one_whose_drafts_never_arrive_is_told_of_and_not_waited_for():
    told = Told(1, 2)
    for _ in range(3):
        assert told.all.broken == ()
        told.verified(1, num_missing=1, is_drafted=True)
    assert told.all.broken == (told.by_id[1],)
    assert told.places() == [2, 2, 2]
    told.hear(1)
    assert told.places() == [2, 2, 2], "what it says does not help"
    assert told.all.newest == 2


def test_a_warming_source_drafts_for_nobody():
    told = Told(1)
    source = told.warm(2)
    assert told.places() == [1, 1, 1]
    assert told.all.warming == (source,)
    assert told.all.newest == 1


def test_the_new_one_takes_the_place_of_the_old_one_and_nobody_else_moves():
    told = Told(1, 2, 3)
    told.all.cut_over(told.by_id[2], told.warm(9))
    assert told.places() == [1, 9, 3]
    assert told.all.warming == ()
    assert told.all.newest == 9
    assert {source.source_id for source in told.all} == {1, 2, 3, 9}, "the old one drains"


def test_without_an_old_one_it_serves_beside_the_others():
    told = Told(1)
    told.all.cut_over(None, told.warm(2))
    assert told.places() == [1, 2, 1]


def test_in_the_place_of_one_that_was_lost_meanwhile_it_serves_beside_the_others():
    told = Told(1, 2)
    told.drop(1)
    told.all.cut_over(told.by_id[1], told.warm(3))
    assert told.places() == [2, 3, 2]
    assert told.by_id[1].is_gone


def test_only_a_warm_one_can_take_over():
    told = Told(1)
    new = told.begin(5)
    told.all.warm_up(new)
    with pytest.raises(StateError, match="source 5: TAKE_OVER is not allowed in WARMING"):
        told.all.cut_over(told.by_id[1], new)
    assert told.places() == [1, 1, 1]


def test_a_warming_one_that_is_lost_is_forgotten():
    told = Told(1)
    told.warm(2)
    told.drop(2)
    assert [source.source_id for source in told.all] == [1]
    assert told.hear(2) is False


def test_one_that_was_replaced_gives_its_place_up_even_if_it_is_suspect():
    told = Told(1)
    told.suspect(1)
    told.all.cut_over(told.by_id[1], told.warm(2))
    told.hear(1)
    assert told.places() == [2, 2, 2]
