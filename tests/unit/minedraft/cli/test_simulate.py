from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from minedraft.cli.main import app


def simulate(*arguments):
    return CliRunner().invoke(app, ["simulate", *arguments])


def step(lane, rows, drafts, ms):
    return {
        "lane": lane, "num_rows": rows, "num_draft_tokens": drafts, "num_prefill_rows": 0,
        "num_steps": 20, "total_ms_p50": ms, "sum_ms": 20 * ms, "overlap": 0.0,
    }  # fmt: skip


@pytest.fixture
def bench(tmp_path):
    request = {
        "arrival_ms": 0.0, "num_prompt_tokens": 30, "num_output_tokens": 40,
        "num_draft_tokens": 30, "acceptance_histogram": [2, 2, 6],
    }  # fmt: skip
    mode = {
        "num_batches": 1, "max_batch_size": 4, "num_draft_tokens": 2, "tokens_per_s": 200.0,
        "step_ms_p50": 50.0, "verify_ms_p50": 40.0, "draft_ms_p50": 10.0,
        "steps": [step("verify", 4, 8, 40.0), step("draft", 4, 8, 10.0)],
        "requests": [request] * 8,
    }  # fmt: skip
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"modes": {"sd": mode}}))
    return path


def test_figures_and_a_picture_are_written(tmp_path):
    figures, picture = tmp_path / "new" / "f.json", tmp_path / "p.svg"
    found = simulate(
        "--requests", "20", "--rate", "30", "--json", str(figures), "--svg", str(picture)
    )
    assert found.exit_code == 0, found.output
    assert "2 x 8, k = 4" in found.stdout
    assert json.loads(figures.read_text())["finished"] == {"length": 20}
    assert ET.parse(picture).getroot().tag.endswith("svg")


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    texts = []
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        path = tmp_path / name
        options = ("--rate", "9", "--aborts", "0.2", "--spread", "1", "--requests", "24")
        assert simulate(*options, "--seed", seed, "--json", str(path)).exit_code == 0
        texts.append(path.read_bytes())
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_a_bench_is_replayed_beside_what_it_measured(bench, tmp_path):
    figures = tmp_path / "f.json"
    found = simulate("--from", str(bench), "--json", str(figures))
    assert found.exit_code == 0, found.output
    assert "sd" in found.stdout
    (sd,) = json.loads(figures.read_text()).values()
    assert sd["step_over_measured"] == pytest.approx(1.02, abs=0.03)
    assert sd["simulated"]["steady"]["verify_ms"] == pytest.approx(40, rel=0.02)


def test_a_bench_gives_costs_and_acceptance_to_another_shape(bench):
    found = simulate("--from", str(bench), "--batches", "2", "--batch", "2", "--k", "2")
    assert found.exit_code == 0, found.output
    assert "2 x 2, k = 2" in found.stdout


def test_a_trace_is_served(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,9,5\n1,9,5\n2,9,5\n")
    found = simulate("--trace", str(trace), "--requests", "2")
    assert found.exit_code == 0, found.output
    assert "2 length" in found.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--trace", "none.csv"), "trace='none.csv': no such file"),
        (("--from", "none.json"), "from='none.json': no such file"),
        (("--costs", "none.json"), "costs='none.json': no such file"),
        (("--verify-ms", "3"), "give both --verify-ms and --draft-ms"),
        (("--verify-ms", "3", "--draft-ms", "1", "--costs", "x"), "not both"),
        (("--shape", "round"), "shape='round': want one of auto, fixed"),
        (("--assignment", "any"), "assignment='any': want one of balanced, paper"),
        (("--rate", "0"), "rate=0.0: want more than 0"),
        (("--acceptance", "often"), "acceptance='often'"),
        (("--acceptance", "1.5"), "acceptance=[1.5]"),
        (("--rate-scale", "0", "--trace", "none.csv"), "rate_scale=0.0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(options, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = simulate(*options)
    assert found.exit_code == 1
    assert named in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "option",
    ["--verify-ms", "--hop-ms", "--rate", "--spread", "--aborts", "--autocorrelation", "--batch"],
)
@pytest.mark.parametrize("value", ["nan", "-1", "1e30"])
def test_a_number_out_of_its_range_is_refused_by_name(option, value):
    found = simulate(option, value, "--max-steps", "1")
    assert found.exit_code != 0
    assert option in found.stderr or option.removeprefix("--").replace("-", "_") in found.stderr


def test_a_shape_can_be_chosen_by_the_coordinator(tmp_path):
    figures = tmp_path / "f.json"
    costs = ("--verify-ms", "20", "--draft-ms", "20", "--acceptance", "0")
    found = simulate(
        "--shape", "auto", "--batches", "1", "--batch", "8", *costs, "--output-tokens", "300",
        "--json", str(figures),
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    figures = json.loads(figures.read_text())
    assert figures["num_shape_switches"] >= 1
    assert figures["last_shape"] == "plain decoding"


def test_a_run_is_bounded():
    found = simulate("--requests", "50", "--max-steps", "5")
    assert found.exit_code == 0
    assert "none ended" in found.stdout
