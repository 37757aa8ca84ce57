from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from minedraft.bench.sizing import Speed
from minedraft.bench.steady import MIN_STEPS
from minedraft.cli.demo import DEMOS, data_file, spread
from minedraft.cpu import choose_dtype_here
from minedraft.errors import ConfigError


@pytest.mark.parametrize("demo", DEMOS.values(), ids=DEMOS)
def test_the_prompts_of_every_demo_are_in_the_checkout(demo):
    from minedraft.bench.prompts import load_prompts

    path = data_file(demo.prompts)
    most = demo.sizes[-1].num_prompts
    texts = load_prompts(path, limit=most, max_chars=demo.max_prompt_chars)
    assert len(set(texts)) == most


def test_the_context_of_every_demo_fits_its_kv_blocks():
    for demo in DEMOS.values():
        max_tokens = max(size.max_tokens for size in demo.sizes)
        longest = demo.max_prompt_chars // 2 + max(max_tokens, demo.answer_tokens)
        assert 2 * demo.batch * (longest // 16 + 2) <= demo.num_blocks


def test_an_unknown_pair_is_one_line(minedraft):
    result = minedraft("demo", "llama")
    assert result.exit_code == 1
    assert "pair='llama'" in result.stderr


def test_missing_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="from a checkout"):
        data_file("nothing.jsonl")


@pytest.fixture
def staged(fake, monkeypatch):
    """The demo against the double in place of models and processes."""

    @dataclass
    class Found:
        target_dir: Path = Path("/m/target")
        draft_dir: Path = Path("/m/draft")

    specs = []

    @asynccontextmanager
    async def started(spec):
        specs.append(spec)
        yield type("Up", (), {"address": fake.address})

    monkeypatch.setattr("minedraft.hub.pairs.ensure_pair", lambda _name: Found())
    monkeypatch.setattr("minedraft.cli.demo.started", started)
    monkeypatch.setattr("minedraft.cli.bench.started", started)
    return specs


def test_the_demo_ends_with_tables_picture_trace_and_verdict(minedraft, staged, tmp_path):
    result = minedraft("demo", "smollm2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert text.index("[4] ?") < text.index("AR") < text.index("SYNTHETIC acceptance of 0.8")
    assert text.count("identical outputs: yes") == 3
    assert staged[0].drafter_kind == "synthetic"
    assert staged[0].dtype == "float32"
    out_dir = tmp_path / "smollm2"
    assert {path.name for path in out_dir.iterdir()} == {
        "bench.json", "bench-synthetic.json", "rotation.svg", "rotation.trace.json",
    }  # fmt: skip
    assert set(json.loads((out_dir / "bench-synthetic.json").read_text())["modes"]) == {
        "ar", "ar_2m", "ar_all", "sd", "sd_2m", "psd",
    }  # fmt: skip
    assert "PSD / AR with 2M on the same cores" in text
    assert [spec.draft for spec in staged] == ["/m/draft", ""], "ar_all has no drafter"


@pytest.mark.parametrize(
    ("texts", "want"),
    [("a", "a"), ("abcabcabc", "abc"), ("abcd", "abcd"), ("abcdefgh", "aceg"), ("abcdefg", "abdf")],
)
def test_the_answers_are_of_different_prompts_from_all_over_the_file(texts, want):
    assert "".join(spread(tuple(texts), 4)) == want


@pytest.mark.parametrize(
    ("token_s", "want"),
    [
        (0.0, "24 prompts x 48 tokens"),
        (0.024, "8 prompts x 32 tokens"),
        (9.0, "8 prompts x 28 tokens"),
    ],
)
def test_a_slow_machine_measures_less_and_says_how_much(
    minedraft, staged, fake, tmp_path, monkeypatch, token_s, want
):
    names = ("ar", "ar_2m", "ar_all", "sd", "sd_2m", "psd")

    async def calibrated(client, options, *, num_tokens, all_cores, progress):
        return {name: Speed(0.0, token_s) for name in names}

    monkeypatch.setattr("minedraft.cli.demo.calibrate", calibrated)
    result = minedraft("demo", "smollm2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert want in result.stdout
    num_prompts, max_tokens = (int(word) for word in want.split() if word.isdigit())
    measured = fake.requests[4:]  # after the streamed answers
    assert len(measured) == 9 * num_prompts  # every mode once, sd and psd once more
    assert {request.sampling.max_tokens for request in measured} == {max_tokens}
    assert len({str(request.messages) for request in measured}) == num_prompts


def test_every_size_of_a_demo_fills_the_slots_and_gives_steps_for_a_median():
    for demo in DEMOS.values():
        assert list(demo.sizes) == sorted(demo.sizes, key=lambda s: s.num_prompts * s.max_tokens)
        for size in demo.sizes:
            assert size.num_prompts >= 2 * demo.batch
            assert size.max_tokens / (demo.k + 1) >= MIN_STEPS


def test_a_short_file_of_prompts_is_shown_whole(minedraft, staged, fake, tmp_path):
    prompts = tmp_path / "three.jsonl"
    prompts.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in "abc"))
    result = minedraft("demo", "coder", "--prompts", str(prompts), "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    streamed = [request.messages[0].content for request in fake.requests[:3]]
    assert sorted(streamed) == ["a", "b", "c"]
    assert "[3] ?" in result.stdout
    assert "[4]" not in result.stdout


def test_the_coder_demo_says_what_share_agrees(minedraft, staged, tmp_path):
    result = minedraft("demo", "coder", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "requests that agree in all modes: 100%" in result.stdout
    assert "SYNTHETIC" not in result.stdout
    assert (staged[0].dtype, staged[0].drafter_kind) == (choose_dtype_here("auto")[0], "model")


def test_outputs_that_differ_in_fp32_fail_the_demo(minedraft, staged, fake, tmp_path):
    plain = fake._events

    async def drifting(request):
        if fake.mode.num_batches == 2:
            request = type(request)(text="something else", sampling=request.sampling)
        async for event in plain(request):
            yield event

    fake._events = drifting
    result = minedraft("demo", "smollm2", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "outputs differ between modes" in result.stderr
    assert "identical outputs: no" in result.stdout
