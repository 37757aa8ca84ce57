from __future__ import annotations

import json

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modes", "ar,pearl"], "pearl"),
        (["--target", "/nowhere/at/all"], "target='/nowhere/at/all': no such directory"),
        (["--pair", "smollm2", "--target", "x"], "not both"),
    ],
)
def test_bad_options_are_one_line(minedraft, prompts, arguments, message):
    result = minedraft("bench", "--prompts", str(prompts), *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
