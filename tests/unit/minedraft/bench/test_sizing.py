from __future__ import annotations

import pytest

from minedraft.api import SpeculationStats
from minedraft.bench.load import Record
from minedraft.bench.sizing import Size, Speed, choose, predict, speed_of
from minedraft.errors import ConfigError

SIZES = (Size(8, 24), Size(8, 48), Size(24, 48))
SPEED = Speed(prompt_s=0.25, token_s=0.5)


def record(num_tokens, ttft_s, e2e_s):
    return Record(tuple(range(num_tokens)), "", 9, ttft_s, e2e_s, SpeculationStats())


def test_a_measurement_costs_its_prompts_and_their_later_tokens():
    assert SPEED.seconds(Size(8, 24)) == 8 * (0.25 + 23 * 0.5)
    assert predict([SPEED, SPEED], Size(8, 24)) == 2 * SPEED.seconds(Size(8, 24))


def test_the_speed_is_that_of_the_slots_together():
    # Four prompts take 2 s, their 4 x 5 later tokens 5 s more.
    speed = speed_of([record(6, ttft, 7.0) for ttft in (0.5, 1.0, 1.5, 2.0)], 7.0)
    assert speed == Speed(0.5, 0.25)


def test_a_run_of_single_tokens_says_nothing_of_further_ones():
    assert speed_of([record(1, 1.0, 1.0)], 1.0) == Speed(1.0, 0.0)


@pytest.mark.parametrize(
    ("budget_s", "size"),
    [
        (1e9, SIZES[2]),
        (predict([SPEED], SIZES[2]), SIZES[2]),
        (predict([SPEED], SIZES[2]) - 1e-6, SIZES[1]),
        (predict([SPEED], SIZES[1]) - 1e-6, SIZES[0]),
        (0.0, SIZES[0]),  # less would say nothing
    ],
)
def test_the_largest_size_that_fits_is_taken_and_never_less_than_the_smallest(budget_s, size):
    assert choose(SIZES, [SPEED], budget_s) == size


def test_no_sizes_are_refused():
    with pytest.raises(ConfigError, match="sizes"):
        choose((), [SPEED], 1.0)
