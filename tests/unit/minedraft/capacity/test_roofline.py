from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minedraft.capacity.device import DEVICES
from minedraft.capacity.known_models import model_of
from minedraft.capacity.roofline import EAGER, GRAPHS, RooflineCosts, pass_s


def decode_ms(model, device, *, tp=1, launch, tokens=1):
    shape = model_of(model)
    return 1e3 * pass_s(
        shape, DEVICES[device], num_tokens=tokens, context=200 * tokens, tp=tp, launch=launch
    )


@pytest.mark.parametrize(
    ("model", "tp", "launch", "ms", "within"),
    [
        ("Qwen3-0.6B", 1, EAGER, 10.0, 0.05),
        ("Qwen3-0.6B", 1, GRAPHS, 0.8, 0.1),
        ("Qwen3-32B", 4, EAGER, 23.0, 0.05),
        ("Qwen3-32B", 4, GRAPHS, 7.0, 0.2),
        ("Llama-3.1-8B", 1, GRAPHS, 5.1, 0.1),
    ],
)
def test_a_pass_on_an_h100_takes_what_was_published_or_estimated(model, tp, launch, ms, within):
    assert decode_ms(model, "H100", tp=tp, launch=launch) == pytest.approx(ms, rel=within)


@pytest.mark.parametrize(("tokens", "ms"), [(4, 172), (8, 254), (20, 413), (40, 706)])
def test_a_verify_step_on_a_core_takes_what_the_readme_measured(tokens, ms):
    found = decode_ms("Qwen2.5-Coder-1.5B-Instruct", "EPYC", launch=EAGER, tokens=tokens)
    assert found == pytest.approx(ms, rel=0.1)


@pytest.mark.parametrize(("rows", "ms"), [(4, 294), (8, 414)])
def test_a_draft_step_on_a_core_takes_about_what_the_readme_measured(rows, ms):
    target, small = model_of("Qwen2.5-Coder-1.5B-Instruct"), model_of("Qwen2.5-Coder-0.5B-Instruct")
    costs = RooflineCosts(target, DEVICES["EPYC"], 1, small)
    found = costs.draft_ns((rows,) * 4, rows, rows * 200, overlapped=0) / 1e6
    assert found == pytest.approx(ms, rel=0.3)


def test_cores_of_one_machine_slow_each_other_and_gpus_do_not():
    for name, factor in (("EPYC", 1.06), ("H100", 1.0)):
        costs = RooflineCosts(model_of("Qwen3-8B"), DEVICES[name])
        alone = costs.verify_ns(8, 8, 800, overlapped=0)
        assert costs.verify_ns(8, 8, 800, overlapped=1) == pytest.approx(alone * factor)


def test_without_a_drafter_drafts_take_no_time():
    costs = RooflineCosts(model_of("Qwen3-8B"), DEVICES["H100"])
    assert costs.draft_ns((4, 4), 4, 400, overlapped=0) == 0


sizes = st.integers(1, 4096)


@given(sizes, sizes, st.integers(0, 1 << 20), st.sampled_from(sorted(DEVICES)))
def test_more_tokens_or_context_never_take_less(few, more, context, device):
    low, high = sorted((few, more))
    for launch in (EAGER, GRAPHS):
        times = [
            pass_s(
                model_of("Qwen3-8B"), DEVICES[device], num_tokens=tokens, context=each,
                launch=launch,
            )
            for tokens, each in ((low, context), (high, context), (high, context + 1000))
        ]  # fmt: skip
        assert times == sorted(times)


@given(sizes, st.sampled_from([0.5, 2.0, 10.0]))
def test_a_faster_device_never_takes_longer(tokens, times):
    slow = DEVICES["L40S"]
    fast = replace(slow, bandwidth=slow.bandwidth * times, flops=slow.flops * times)
    taken = [
        pass_s(model_of("Qwen3-8B"), device, num_tokens=tokens, context=100)
        for device in (slow, fast)
    ]
    assert (taken[0] >= taken[1]) == (times >= 1) or taken[0] == taken[1]


def test_drafts_of_fewer_rows_take_less():
    costs = RooflineCosts(
        model_of("Qwen3-8B"), DEVICES["EPYC"], 1, model_of("Qwen3-0.6B"), DEVICES["EPYC"]
    )
    full = costs.draft_ns((8, 8, 8), 8, 800, overlapped=0)
    assert costs.draft_ns((8, 4, 1), 8, 800, overlapped=0) < full
