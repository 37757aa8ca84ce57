from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minedraft.capacity.layout import layouts
from minedraft.capacity.memory import memory
from minedraft.capacity.price import price
from minedraft.capacity.question import Slo
from minedraft.capacity.search import HEADROOM, evaluate, search
from minedraft.errors import ConfigError
from tests.capacity_world import ask

names = st.sampled_from(["H100", "H200", "A100", "L40S"])


@settings(max_examples=20, deadline=None)
@given(names, st.integers(1, 3), st.integers(1, 1), st.floats(0.5, 60), st.sampled_from([30, 1e9]))
def test_more_devices_are_never_worse(name, count, more, rate, tpot_ms):
    slo = Slo(tpot_ms=tpot_ms)
    found = []
    for num in (count, count + more):
        try:
            best = search(ask(f"{num}x{name}", rate=(rate, rate), slo=slo))[0]
        except ConfigError:
            found.append((math.inf, math.inf))
        else:
            found.append(best.score[:2])
    assert found[1] <= found[0]


@settings(max_examples=20, deadline=None)
@given(names, st.integers(1, 3), st.integers(1, 60), st.integers(2, 20_000))
def test_memory_is_never_exceeded(name, count, rate, prompt):
    question = ask(f"{count}x{name}", rate=(1.0, float(rate)), prompt_tokens=prompt)
    try:
        found = search(question)
    except ConfigError:
        return
    for each in found:
        assert each.memory.missing == 0
        assert memory(each.layout, question, each.batch_size).missing == 0


def test_the_chosen_batch_carries_the_rate_with_a_tenth_to_spare():
    question = ask("5xH100", rate=(2.0, 8.0))
    for each in search(question):
        full = price(each.layout, question, each.batch_size, each.layout.costs(question))
        most = each.layout.num_groups * full.rate(question.output_tokens)
        assert most * HEADROOM >= each.carried_rate * (1 - 1e-6)
        assert each.usual.batch_size <= each.batch_size
        assert each.carried_rate <= 8.0


def test_an_slo_bounds_the_batch():
    free = search(ask("5xH100", rate=(60.0, 60.0)))[0]
    held = search(ask("5xH100", rate=(60.0, 60.0), slo=Slo(tpot_ms=23.8)))[0]
    assert held.usual.tpot_ms <= 23.8 < free.usual.tpot_ms
    assert held.carried_rate < free.carried_rate


def test_the_best_of_each_structure_is_kept_and_order_is_by_score():
    found = search(ask("3xH100"))
    assert len({each.layout.structure for each in found}) == len(found)
    assert [each.score for each in found] == sorted(each.score for each in found)


def test_a_drafter_that_is_never_right_is_never_chosen():
    from tests.capacity_world import drafter

    found = search(ask("5xH100", drafters=(drafter(acceptance=0.0),)))
    assert found[0].layout.drafter is None


def test_a_model_that_does_not_fit_says_by_how_much():
    with pytest.raises(ConfigError, match=r"memory: Qwen3-32B does not fit.*lacks \d+\.\d GB"):
        search(ask("1xL40S"))
    with pytest.raises(ConfigError, match=r"memory: .*Nearest is 1 x H100: it lacks"):
        search(ask("1xH100", concurrency=1000))


def test_an_slo_that_nothing_keeps_says_what_the_least_is():
    with pytest.raises(
        ConfigError, match=r"^slo: no layout keeps tpot=0.5 ms; .*alone is \d+\.\d ms"
    ):
        search(ask("5xH100", slo=Slo(tpot_ms=0.5)))


def test_a_number_of_devices_that_cannot_share_the_target_is_refused():
    with pytest.raises(ConfigError, match="tp=16 does not do"):
        search(ask("16xH100", tp=16))


def test_concurrency_is_held():
    question = ask("5xH100", concurrency=300)
    small = [each for each in layouts(question) if each.tp == 1 and each.num_groups == 1]
    assert all(evaluate(each, question) is None for each in small)
    assert search(question)


def test_layouts_are_bounded(monkeypatch):
    monkeypatch.setattr("minedraft.capacity.search.MAX_LAYOUTS", 10)
    with pytest.raises(ConfigError, match="gpus: more than 10 layouts"):
        search(ask("5xH100"))


def test_progress_is_told():
    told = []
    search(ask("2xH100"), told.append)
    assert told == list(range(1, len(told) + 1))


def test_the_best_batch_has_a_place_for_each_request_that_must_fit():
    for each in search(ask("5xH100", concurrency=40)):
        layout = each.layout
        assert layout.num_groups * layout.num_batches * each.batch_size >= 40
