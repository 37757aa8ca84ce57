from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.capacity.advice import Choice, advise
from minedraft.capacity.figures import column, columns, to_json
from minedraft.capacity.question import Slo
from minedraft.capacity.reasons import assumptions, commands, layout_in_words, reasons
from minedraft.capacity.search import search
from tests.capacity_world import ask, drafter


@pytest.fixture(scope="module")
def advice():
    return advise(ask("3xH100", rate=(10.0, 10.0), prompt_tokens=64, output_tokens=64))


def test_there_is_a_best_one_a_next_one_and_both_cases_without_a_second_device(advice):
    layouts = [each.candidate.layout for each in columns(advice).values()]
    assert list(columns(advice)) == [
        "recommended", "runner-up", "shared device", "plain",
    ]  # fmt: skip
    assert layouts[0].structure != layouts[1].structure
    assert layouts[2].is_shared
    assert layouts[3].drafter is None


def test_the_best_one_scores_best_of_those_simulated(advice):
    assert advice.best.score(advice.question) <= advice.runner_up.score(advice.question)


def test_what_is_shown_beside_is_the_best_of_its_kind(advice):
    if advice.best.candidate.layout.is_shared:
        assert advice.shared is advice.best
    if advice.best.candidate.layout.drafter is None:
        assert advice.plain is advice.best


def test_one_that_the_simulator_saw_break_the_slo_is_behind(advice):
    strict = replace(advice.question, slo=Slo(tpot_ms=advice.best.confirmed.tpot_ms_p95 * 0.99))
    assert advice.best.score(strict) > advice.best.score(advice.question)
    assert advice.best.score(strict)[0]


def test_progress_ends_at_the_whole():
    told = []
    advise(
        ask("1xH100", (20.0, 20.0), drafters=(), prompt_tokens=16, output_tokens=16), told.append
    )
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)


def test_reasons_name_v_t_g_and_what_there_is_beside(advice):
    found = search(advice.question)
    rotation = next(each for each in found if each.layout.num_batches > 1)
    best = Choice(rotation, advice.best.confirmed, gain=1.23)
    text = " ".join(reasons(replace(advice, best=best)))
    price = rotation.usual
    assert f"V is {price.verify_ms:.1f} ms, t is {price.draft_ms:.1f} ms" in text
    assert "1.23 times what one batch of all requests gives (G)" in text
    assert "Over no speculation it" in text
    assert "Over the drafter on the target's device it" in text


def test_a_rate_that_nothing_carries_says_how_many_devices_do():
    found = advise(
        ask("1xH100", rate=(500.0, 500.0), drafters=(), prompt_tokens=16, output_tokens=16)
    )
    text = next(iter(reasons(found)))
    assert "of 500 requests/s; no layout of these devices carries more" in text
    assert "services" in text


def test_it_says_how_to_start_a_service(advice):
    verifier, *_, coordinator = commands(advice)
    assert verifier.startswith("minedraft verifier --model Qwen/Qwen3-32B --tp-size ")
    assert f"--max-batch-size {advice.best.candidate.batch_size} " in coordinator


def test_assumptions_name_their_source_and_go_where_a_figure_was_given(advice):
    assert any("Acceptance is assumed: 0.6B" in each for each in assumptions(advice))
    known = replace(advice, question=ask(drafters=(drafter(acceptance=0.6),)))
    assert not any("assumed" in each for each in assumptions(known))
    text = " ".join(assumptions(advice))
    assert "NVIDIA H100 SXM5" in text
    assert "huggingface.co/Qwen/Qwen3-32B" in text
    assert "docs/gpu.md" in text


def test_a_column_has_memory_and_figures_per_device(advice):
    cells = column(advice.best, advice.question)
    assert cells["GB, target device"].endswith("of 80")
    most = advice.best.candidate.most_rate * 64
    assert cells["... per device"] == f"{most / advice.best.candidate.layout.num_devices:.0f}"
    assert column(advice.plain, advice.question)["GB, draft device"] == "-"


def test_all_figures_have_a_json_form(advice):
    import json

    document = json.loads(json.dumps(to_json(advice)))
    assert document["recommended"]["layout"] == layout_in_words(advice.best)
    assert document["recommended"]["price"]["verify_ms"] > 0
