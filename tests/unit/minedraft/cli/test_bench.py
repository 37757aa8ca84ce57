from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"turns": [f"p{i}"]}) + "\n" for i in range(8)))
    return path


def test_the_table_and_the_document_come_out(minedraft, prompts, tmp_path):
    figures = tmp_path / "deep" / "bench.json"
    result = minedraft(
        "bench", "--prompts", str(prompts), "--modes", "ar,sd,psd", "--batch", "2", "--k", "4",
        "--max-tokens", "12", "--json", str(figures),
    )  # fmt: skip
    assert result.exit_code == 0
    assert "identical outputs: yes" in result.stdout
    assert "PSD / SD (equal batch)" in result.stdout
    document = json.loads(figures.read_text())
    assert set(document["modes"]) == {"ar", "ar_2m", "sd", "sd_2m", "psd"}
    for key in ("overlap_efficiency", "psd_over_sd", "psd_over_sd_predicted", "psd_over_sd_2m",
                "psd_over_sd_2m_predicted"):  # fmt: skip
        assert document[key] > 0
    assert document["options"]["num_prompts"] == 8


def test_synthetic_figures_say_so(minedraft, prompts):
    result = minedraft(
        "bench", "--prompts", str(prompts), "--batch", "2", "--max-tokens", "12",
        "--synthetic-acceptance", "0.8",
    )  # fmt: skip
    assert "SYNTHETIC acceptance of 0.8" in result.stdout


@pytest.fixture
def own(fake, monkeypatch, tmp_path):
    """Services of its own: the double in place of models and processes."""
    specs = []

    @asynccontextmanager
    async def started(spec):
        specs.append(spec)
        yield type("Up", (), {"address": fake.address})

    monkeypatch.setattr("minedraft.cli.bench.started", started)
    monkeypatch.setattr("minedraft.cli.cluster.os.sched_getaffinity", lambda _pid: {0, 1})
    (tmp_path / "model").mkdir()
    return specs


def test_services_of_its_own_also_show_the_target_alone_on_all_cores(
    minedraft, own, prompts, tmp_path
):
    figures = tmp_path / "bench.json"
    result = minedraft(
        "bench", "--prompts", str(prompts), "--batch", "2", "--max-tokens", "12",
        "--target", str(tmp_path / "model"), "--draft", str(tmp_path / "model"),
        "--json", str(figures),
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "PSD / AR with 2M on the same cores" in result.stdout
    document = json.loads(figures.read_text())
    cores = {name: mode["cores"] for name, mode in document["modes"].items()}
    assert cores == {
        "ar": "0", "ar_2m": "0", "ar_all": "0,1", "sd": "0,1", "sd_2m": "0,1", "psd": "0,1",
    }  # fmt: skip
    both, alone = own
    assert (alone.draft, alone.threads, alone.verifier_cpus) == ("", 2, "0,1")
    assert alone.mode.num_slots == both.mode.num_slots == 4


def test_a_target_without_a_drafter_is_measured_without_drafts(minedraft, own, prompts, tmp_path):
    figures = tmp_path / "bench.json"
    result = minedraft(
        "bench", "--prompts", str(prompts), "--batch", "2", "--max-tokens", "12",
        "--target", str(tmp_path / "model"), "--json", str(figures),
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert set(json.loads(figures.read_text())["modes"]) == {"ar", "ar_2m", "ar_all"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modes", "ar,pearl"], "pearl"),
        (["--modes", "ar,ar_all"], "modes='ar_all': needs services of its own"),
        (["--target", "/nowhere/at/all"], "target='/nowhere/at/all': no such directory"),
        (["--pair", "smollm2", "--target", "x"], "not both"),
    ],
)
def test_bad_options_are_one_line(minedraft, prompts, arguments, message):
    result = minedraft("bench", "--prompts", str(prompts), *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
