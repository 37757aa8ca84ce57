"""The list of `make bench`: what it starts is there, and a report becomes lines."""

from __future__ import annotations

import importlib
import json
import sys

import pytest

from benchmarks.turns import HERE


@pytest.fixture(scope="module")
def run_all():
    before = list(sys.path)
    sys.path.insert(0, str(HERE / "benchmarks"))
    try:
        yield importlib.import_module("run_all")
    finally:
        sys.path[:] = before


def test_every_job_starts_something_that_is_there_and_described(run_all):
    told = (HERE / "benchmarks" / "README.md").read_text()
    for name, job in run_all.JOBS.items():
        first = job.arguments[0]
        if first != "-m":
            assert (HERE / "benchmarks" / f"{name}.py").samefile(first)
            assert f"`{name}.py`" in told, name


def test_one_differing_output_misses_its_line(run_all):
    result = {
        "dtype": "bfloat16", "num_compared": 144, "num_preemptions": 3, "differing": {},
    }  # fmt: skip
    line, preempted = run_all.same_outputs({"results": [result]})
    assert line.is_met
    assert preempted.is_met
    differing = {**result, "differing": {"psd, k = 2": [5]}}
    line, _ = run_all.same_outputs({"results": [differing]})
    assert (line.figure, line.is_met) == (1, False)
    _, preempted = run_all.same_outputs({"results": [{**result, "num_preemptions": 0}]})
    assert (preempted.figure, preempted.is_met) == (0, False)


def bench(**changes):
    figures = {
        "psd_over_sd": 1.5, "psd_over_sd_predicted": 1.6, "psd_over_ar_all": 1.05,
    }  # fmt: skip
    return {**figures, **changes}


def test_the_coder_lines_compare_on_the_same_cores(run_all):
    found = {
        "tokens_per_s": {"ar_all": 10.0, "psd": 10.5}, "psd_over_ar_all": 1.05,
        "best_over_best_of_vllm": None, "bench": bench(),
    }  # fmt: skip
    eight = {**found, "best_over_best_of_vllm": 1.3}
    lines = list(run_all.coder({"running": {"2": found, "8": eight}}))
    met = {line.text: line.is_met for line in lines}
    assert met == {
        "coder, 2 running: psd_over_sd over its prediction": True,
        "coder, 2 running: psd over ar_all, same cores": False,
        "coder, 8 running: psd_over_sd over its prediction": True,
        "coder, 8 running: psd over ar_all, same cores": True,
        "coder, 8 running: best of ours over best of vLLM": True,
    }


@pytest.fixture
def tables(run_all):
    sys.path.insert(0, str(HERE / "benchmarks"))
    try:
        yield importlib.import_module("tables")
    finally:
        sys.path.remove(str(HERE / "benchmarks"))


def test_a_table_is_drawn_from_its_report_and_others_stay(tables, tmp_path):
    report = {"ratio": 0.7, "limit": 0.65}
    (tmp_path / "two_threads.json").write_text(json.dumps(report))
    place = "<!-- {}: drawn by benchmarks/tables.py -->\nold\n<!-- end -->\n"
    text = f"before\n{place.format('two_threads')}between\n{place.format('coder')}after\n"
    new = tables.redrawn(text, tmp_path)
    assert "| two threads over one, 16x1, wall | 0.7 | <= 0.65 | **no** |" in new
    assert new.endswith(f"between\n{place.format('coder')}after\n")
    assert new.count("old") == 1
    assert tables.redrawn(new, tmp_path) == new


def test_every_place_for_a_table_names_a_benchmark(tables, run_all):
    for document in tables.DOCUMENTS:
        found = tables.PLACE.findall((HERE / document).read_text())
        assert {name for _, name, _ in found} <= {*run_all.JOBS, *tables.PATHS}
