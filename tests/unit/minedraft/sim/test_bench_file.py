from __future__ import annotations

import copy
import json

import pytest

from minedraft.admin import Span
from minedraft.api import SpeculationStats
from minedraft.bench.load import Record
from minedraft.bench.modes import Measurement
from minedraft.bench.result import BenchResult, ModeResult
from minedraft.bench.steady import measure
from minedraft.errors import ConfigError, ModelError
from minedraft.plans import StepTiming
from minedraft.sim.bench_file import Asked, acceptance_of, read_bench
from minedraft.sim.load import Arrival
from minedraft.sim.outputs import AcceptanceModel, Output
from minedraft.types import Mode

MODE = {
    "num_batches": 2,
    "max_batch_size": 4,
    "num_draft_tokens": 3,
    "tokens_per_s": 100.0,
    "step_ms_p50": 20.0,
    "verify_ms_p50": 18.0,
    "draft_ms_p50": 12.5,
    "steps": [
        {
            "lane": "verify",
            "num_rows": 4,
            "num_draft_tokens": 12,
            "num_prefill_rows": 0,
            "num_steps": 9,
            "total_ms_p50": 18.0,
            "sum_ms": 160.0,
            "overlap": 0.5,
        }
    ],
    "requests": [
        {
            "arrival_ms": 0.5,
            "num_prompt_tokens": 30,
            "num_output_tokens": 8,
            "num_draft_tokens": 9,
            "acceptance_histogram": [1, 0, 1, 1],
        }
    ],
}


@pytest.fixture
def bench(tmp_path):
    def write(change=lambda _mode: None, text=None):
        mode = copy.deepcopy(MODE)
        change(mode)
        path = tmp_path / "bench.json"
        path.write_text(text if text is not None else json.dumps({"modes": {"psd": mode}}))
        return path

    return write


def test_a_bench_is_read(bench):
    (found,) = read_bench(bench()).values()
    assert found.mode == Mode(2, 4, 3)
    assert found.load.concurrency == 8
    assert found.load.arrivals == (Arrival(30, 8),)
    assert found.steps[0].overlap == 0.5
    assert found.requests[0].histogram == (1, 0, 1, 1)


def put(*path, value):
    """A change of a field deep inside."""

    def change(mode):
        place = mode
        for key in path[:-1]:
            place = place[key]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put("num_batches", value=0), "modes.psd.num_batches is 0"),
        (put("num_batches", value=None), "modes.psd.num_batches is null"),
        (put("max_batch_size", value=10**9), "modes.psd.max_batch_size is 1000000000"),
        (put("step_ms_p50", value=-1.0), r"modes.psd.step_ms_p50 is -1"),
        (put("tokens_per_s", value="many"), "modes.psd.tokens_per_s is 'many'"),
        (put("verify_ms_p50", value=True), "modes.psd.verify_ms_p50 is true"),
        (put("steps", 0, "lane", value="both"), r"modes.psd.steps\[0\].lane is 'both'"),
        (put("steps", 0, "overlap", value=1.5), r"modes.psd.steps\[0\].overlap is 1.5"),
        (put("steps", 0, "num_steps", value=0), r"modes.psd.steps\[0\].num_steps is 0"),
        (put("steps", 0, value=7), r"modes.psd.steps\[0\] is 7"),
        (put("requests", value=[]), r"modes.psd.requests is"),
        (put("requests", value=None), r"modes.psd.requests is null, want a list of 1.."),
        (put("requests", 0, "num_prompt_tokens", value=0), r"requests\[0\].num_prompt_tokens is 0"),
        (put("requests", 0, "arrival_ms", value=-5), r"requests\[0\].arrival_ms is -5"),
        (
            put("requests", 0, "acceptance_histogram", value=[1, -1]),
            r"requests\[0\].acceptance_histogram is",
        ),
        (
            put("requests", 0, "acceptance_histogram", value=[0] * 40),
            r"requests\[0\].acceptance_histogram is",
        ),
    ],
)
def test_a_bad_field_is_named_with_its_value(bench, change, named):
    with pytest.raises(ModelError, match=named) as caught:
        read_bench(bench(change))
    assert "bench.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "is no JSON"),
        ("[]", "want a JSON object"),
        ("{}", "modes is null"),
        ('{"modes": {}}', "modes is"),
        ('{"modes": {"psd": 3}}', "modes.psd is 3"),
        ('{"modes": {"psd": {"tokens_per_s": NaN}}}', "NaN is no number"),
    ],
)
def test_what_is_no_bench_is_named(bench, text, named):
    with pytest.raises(ModelError, match=named):
        read_bench(bench(text=text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_bench(tmp_path / "none.json")


def served(model, seed, k, length):
    """What a request of a bench reports of its drafts."""
    output, position, histogram, drafted = Output(model, seed, 0, chance=1), 1, [0] * (k + 1), 0
    while position < length:
        wanted = min(k, length - position - 1)  # fewer near the end, as in a real request
        num = output.num_accepted(position, wanted)
        position += num + 1
        if wanted:
            histogram[num] += 1
            drafted += wanted
    return Asked(Arrival(1, length), drafted, tuple(histogram))


def test_the_acceptance_that_made_a_histogram_is_found_again():
    true = AcceptanceModel((0.8, 0.7, 0.6))
    found = acceptance_of([served(true, seed, 3, 60) for seed in range(1, 301)], 3)
    assert found.by_position == pytest.approx((0.8, 0.7, 0.6), abs=0.02)
    assert max(map(abs, found.effects)) < 1


def test_requests_that_differ_have_effects():
    good, bad = (served(AcceptanceModel((each,)), 1, 3, 1000) for each in (0.9, 0.5))
    above, below = acceptance_of([good, bad], 3).effects
    assert above - below == pytest.approx(2.2, abs=0.3)  # log-odds of 0.9 less those of 0.5


def test_requests_that_drafted_nothing_say_nothing():
    assert acceptance_of([Asked(Arrival(1, 1), 0, ())], 0).by_position == (0.7,)


def test_what_a_bench_writes_is_read(tmp_path):
    """From spans and records to the file, and back."""
    timing = StepTiming(10**9, 5_000_000)
    spans = [Span("draft", 0, i, timing, num_rows=1, num_tokens=3) for i in range(4)]
    spans += [
        Span("verify", 0, i, StepTiming(10**9 + 20_000_000 * i, 9_000_000), 1, 4, 3, 3)
        for i in range(4)
    ]
    stats = SpeculationStats(4, 12, 12, 4, (0, 0, 0, 4))
    record = Record((1,) * 17, "", 30, 0.1, 0.5, stats, sent_s=0.25)
    measurement = Measurement("sd", Mode(1, 1, 3))
    result = ModeResult(measurement, (record,), measure(spans, batch=1), tuple(spans), 0.5)
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BenchResult({"sd": result}, None, ((1,) * 17,), {}).to_json()))
    (found,) = read_bench(path).values()
    assert found.step_ms == pytest.approx(20)
    assert [(s.lane, s.num_rows, s.num_draft_tokens, s.num_steps) for s in found.steps] == [
        ("draft", 1, 3, 4),
        ("verify", 1, 3, 4),
    ]
    assert found.requests == (Asked(Arrival(30, 17), 12, (0, 0, 0, 4)),)
    assert found.acceptance.by_position == (1.0, 1.0, 1.0)
