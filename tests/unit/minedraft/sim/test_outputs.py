from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left, bisect_right

import pytest

from minedraft.errors import ConfigError
from minedraft.sim.outputs import AcceptanceModel, Output, prompt


def rate(model, *, seeds=range(1, 401), k=4, steps=20):
    """Accepted and looked at, by position."""
    kept, seen = [0] * k, [0] * k
    for seed in seeds:
        output, position = Output(model, seed, 10, chance=3), 10
        for _ in range(steps):
            num = output.num_accepted(position, k)
            for depth in range(min(num + 1, k)):
                seen[depth] += 1
                kept[depth] += depth < num
            position += num + 1
    return [a / b for a, b in zip(kept, seen, strict=True)]


def test_drafts_stand_as_often_as_their_position_says():
    found = rate(AcceptanceModel((0.9, 0.6, 0.3)))
    assert found == pytest.approx([0.9, 0.6, 0.3, 0.3], abs=0.03)


def test_another_k_meets_the_same_luck():
    model = AcceptanceModel((0.7,), autocorrelation=0.5)
    for seed in range(1, 30):
        long, short = Output(model, seed, 5, chance=1), Output(model, seed, 5, chance=1)
        whole = long.num_accepted(8, 6)
        assert [short.num_accepted(8 + i, 1) for i in range(6)][: whole + 1] == [
            *[1] * whole,
            *([0] if whole < 6 else []),
        ]


def test_requests_differ_by_their_spread():
    def of_each(spread):
        model = AcceptanceModel((0.6,), spread=spread)
        return [rate(model, seeds=[seed], k=1, steps=300)[0] for seed in range(1, 60)]

    assert statistics.stdev(of_each(1.0)) > 3 * statistics.stdev(of_each(0.0))


def test_given_effects_are_those_of_the_requests_in_turn():
    model = AcceptanceModel((0.5,), effects=(4.0, -4.0))
    good, bad = (rate(model, seeds=[seed], k=1, steps=300)[0] for seed in (1, 2))
    assert good > 0.95
    assert bad < 0.05


def test_neighbouring_positions_go_together():
    def repeats(autocorrelation):
        output = Output(AcceptanceModel((0.5,), autocorrelation=autocorrelation), 1, 0, chance=1)
        luck = [output.num_accepted(position, 1) for position in range(4000)]
        return sum(a == b for a, b in itertools.pairwise(luck)) / len(luck)

    assert repeats(0.0) == pytest.approx(0.5, abs=0.04)
    assert repeats(0.9) > 0.8


def test_a_long_output_keeps_little_in_memory():
    output = Output(AcceptanceModel(), 1, 0, chance=1)
    for position in range(5000):
        output.num_accepted(position, 4)
    assert len(output._drawn) < 1000


@pytest.mark.parametrize("auc", [0.5, 0.62, 0.75, 0.9])
@pytest.mark.parametrize("is_surprisal", [False, True])
def test_scores_say_as_much_as_their_auc(auc, is_surprisal):
    output = Output(AcceptanceModel((0.6, 0.4), auc=auc), 1, 0, chance=1)
    right, wrong = [], []
    for position in range(3_000):
        stands = output.num_accepted(position, 1) == 1
        (score,) = output.scores(position, 1, is_surprisal=is_surprisal)
        assert 0 <= score <= 4
        (right if stands else wrong).append(score)
    ordered = sorted(wrong)
    above = sum(bisect_left(ordered, s) + bisect_right(ordered, s) for s in right) / 2
    found = above / (len(right) * len(wrong))
    assert (1 - found if is_surprisal else found) == pytest.approx(auc, abs=0.025)


def test_scores_do_not_depend_on_the_schedule_nor_luck_on_scores():
    model = AcceptanceModel((0.7,))
    one, other, silent = (Output(model, 1, 0, chance=1) for _ in range(3))
    for position in range(0, 3_000, 3):
        whole = one.scores(position, 5)
        assert other.scores(position + 2, 2) == whole[2:4]
        assert one.num_accepted(position, 5) == silent.num_accepted(position, 5)


def test_tokens_depend_on_seed_and_position_alone():
    one, other = (Output(AcceptanceModel((a,)), 7, 3, chance=a) for a in (0, 1))
    assert [one.token(i) for i in range(9)] == [other.token(i) for i in range(9)]
    assert one.token(3) != one.token(4)


def test_prompts_share_what_they_are_to_share():
    a, b, c = (
        prompt(1, 8, prefix=3, num_prefix=5),
        prompt(2, 8, prefix=3, num_prefix=5),
        prompt(3, 8),
    )
    assert a[:5] == b[:5]
    assert a[5:] != b[5:]
    assert len(a) == len(b) == len(c) == 8
    assert a[0] != c[0]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"by_position": ()}, "acceptance="),
        ({"by_position": (1.1,)}, "acceptance="),
        ({"by_position": (float("nan"),)}, "acceptance="),
        ({"spread": -1.0}, "spread="),
        ({"spread": float("nan")}, "spread="),
        ({"autocorrelation": 1.0}, "autocorrelation="),
    ],
)
def test_numbers_out_of_range_are_refused(fields, named):
    with pytest.raises(ConfigError, match=named):
        AcceptanceModel(**fields)
