from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.services.coordinator.core.draft_history import (
    MAX_OFFSET,
    MAX_WAITING,
    DraftHistory,
    Waiting,
)

RATES = (0.8, 0.7, 0.6)


def waiting(base_len: int, epoch: int = 1) -> Waiting:
    return Waiting(epoch, base_len, 1, (1.0, 2.0))


def test_drafts_wait_for_their_outcome_and_older_ones_no_more():
    history = DraftHistory()
    for base_len in (5, 7, 9):
        history.wait(waiting(base_len))
    assert history.find(1, 7) == waiting(7)
    assert history.find(1, 5) is None
    assert history.find(2, 9) is None, "of another link"
    assert history.find(1, 9) == waiting(9)


def test_drafts_wait_until_all_are_judged():
    history = DraftHistory()
    for base_len in (5, 7):
        history.wait(waiting(base_len))
    history.judged(waiting(5), 1, is_over=False)
    assert history.find(1, 5) == waiting(5)._replace(num_judged=1)
    history.judged(waiting(5), 2, is_over=True)
    assert history.find(1, 5) is None
    assert history.find(1, 7) == waiting(7)


def test_few_drafts_wait():
    history = DraftHistory()
    for base_len in range(1, 100):
        history.wait(waiting(base_len))
    assert history.find(1, 99 - MAX_WAITING) is None
    assert history.find(1, 100 - MAX_WAITING) is not None


def test_drafts_that_are_made_again_take_the_place_of_the_first():
    history = DraftHistory()
    history.wait(waiting(5))
    history.wait(waiting(5)._replace(scores=(3.0,)))
    assert history.find(1, 5) == Waiting(1, 5, 1, (3.0,))


def test_an_effect_is_shrunk_and_bounded():
    history = DraftHistory()
    history.move(0.5, 0.25)
    assert 0 < history.offset < 0.5
    for _ in range(1_000):
        history.move(1.0, 0.01)
    assert history.offset == MAX_OFFSET


def test_without_outcomes_a_forecast_is_that_of_the_source():
    forecast = DraftHistory().forecast(0.7, RATES, 0.7, 4)
    assert forecast == pytest.approx([0.8, 0.56, 0.336, 0.2016])


def test_a_request_that_does_better_does_so_at_positions_without_outcomes_too():
    forecast = DraftHistory().forecast(0.9, RATES, 0.7, 3)
    assert forecast[0] > 0.9
    assert forecast[2] / forecast[1] > 0.8


def test_outcomes_of_a_position_move_its_forecast():
    history = DraftHistory()
    for _ in range(30):
        history.observe(1, range(2))
    first, second = history.forecast(0.7, RATES, 0.7, 2)
    assert first == pytest.approx(0.94, abs=0.02)
    assert second / first == pytest.approx(0.2, abs=0.03)
    assert history.is_labelled


@given(
    st.lists(
        st.tuples(st.integers(0, 32), st.integers(0, 32), st.floats(-32, 32), st.floats(0, 8))
    ),
    st.floats(0, 1),
    st.lists(st.floats(0.005, 0.995), min_size=1, max_size=32),
    st.floats(0.005, 0.995),
)
def test_a_forecast_is_a_survival(steps, own, rates, mean):
    history = DraftHistory()
    for matched, resolved, residual, information in steps:
        history.observe(matched, range(resolved))
        history.move(residual, information)
    assert abs(history.offset) <= MAX_OFFSET
    forecast = history.forecast(own, rates, mean, 32)
    assert len(forecast) == 32
    assert all(0 <= b <= a <= 1 for a, b in zip([1.0, *forecast], forecast, strict=False))
