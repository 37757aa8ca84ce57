from __future__ import annotations

import pytest

from minedraft.capacity.confirm import confirm
from minedraft.capacity.search import search
from tests.capacity_world import ask


@pytest.fixture(scope="module")
def small():
    question = ask("2xH100", rate=(10.0, 10.0), prompt_tokens=64, output_tokens=64)
    return question, search(question)


@pytest.mark.parametrize("kind", ["rotation", "shared", "plain"])
def test_the_simulator_agrees_with_the_closed_form(small, kind):
    question, found = small
    wanted = {
        "rotation": lambda each: each.layout.num_batches == 2 and each.layout.num_drafters == 1,
        "shared": lambda each: each.layout.is_shared,
        "plain": lambda each: each.layout.drafter is None,
    }[kind]
    candidate = next(each for each in found if wanted(each))
    simulated = confirm(candidate, question)
    assert simulated.tpot_ms_p50 == pytest.approx(candidate.usual.tpot_ms, rel=0.25)
    assert simulated.ttft_ms_p50 > 0


def test_one_seed_gives_one_answer_and_progress(small):
    question, found = small
    told = []
    first = confirm(found[0], question, told=told.append)
    assert first == confirm(found[0], question)
    assert told == sorted(told)
    assert told[-1] <= 1


def test_a_rate_beyond_what_is_carried_shows():
    from dataclasses import replace

    question = ask("1xH100", rate=(10.0, 10.0), drafters=(), prompt_tokens=64, output_tokens=64)
    candidate = search(question)[0]
    assert confirm(candidate, question).begun > 0.9
    flooded = replace(candidate, carried_rate=candidate.carried_rate * 20)
    assert confirm(flooded, question).begun < 0.6
