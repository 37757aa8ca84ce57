from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from minedraft.cli.models import resolve
from minedraft.errors import ConfigError, ModelError


def test_a_directory_is_itself(tmp_path):
    assert resolve(str(tmp_path), option="target") == str(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "./a/b", "/a/b", "a/b/c", ""])
def test_what_is_neither_directory_nor_id_is_named(name):
    with pytest.raises(ConfigError, match="draft="):
        resolve(name, option="draft")


def test_an_id_is_fetched_from_the_hub(monkeypatch):
    monkeypatch.setattr("minedraft.cli.models.fetch_snapshot", lambda name: Path("/cache") / name)
    assert resolve("owner/name", option="target") == "/cache/owner/name"


def test_a_hub_that_fails_is_one_line_that_names_the_option(monkeypatch):
    def fail(_name):
        raise ModelError("the hub says: no route to host")

    monkeypatch.setattr("minedraft.cli.models.fetch_snapshot", fail)
    with pytest.raises(ConfigError, match=r"target='owner/name': .*no route to host$"):
        resolve("owner/name", option="target")


def test_fetch_prints_both_directories(minedraft, monkeypatch):
    @dataclass
    class Found:
        target_dir: Path = Path("/m/target")
        draft_dir: Path = Path("/m/draft")

    monkeypatch.setattr("minedraft.hub.pairs.ensure_pair", lambda _name, cache_dir: Found())
    assert minedraft("fetch", "smollm2").stdout == "target /m/target\ndraft  /m/draft\n"


def test_distill_turns_its_options_into_settings(minedraft, monkeypatch, tmp_path):
    seen = []

    @dataclass
    class Made:
        layers_dir: Path = Path("/d")
        complete_dir: Path = Path("/d/complete")

    monkeypatch.setattr(
        "minedraft.distill.run.run_distill",
        lambda options, prompts, progress: seen.append((options, prompts)) or Made(),
    )
    file = tmp_path / "p.jsonl"
    file.write_text('{"turns": ["a"]}\n')
    arguments = ["--target", str(tmp_path), "--prompts", str(file), "--output", "/d"]
    result = minedraft("distill", *arguments, "--layers", "0,2", "--epochs", "1")
    assert result.exit_code == 0
    ((options, prompts),) = seen
    assert (options.layers, options.epochs, prompts) == ((0, 2), 1.0, ["a"])
    assert "layers='x'" in minedraft("distill", *arguments, "--layers", "x").stderr


def test_a_user_without_a_home_is_told_what_to_set(minedraft, monkeypatch):
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("MINEDRAFT_CACHE", raising=False)
    result = minedraft("fetch", "smollm2")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: cache directory ~/.cache/minedraft: ")
    assert result.stderr.endswith("Set MINEDRAFT_CACHE\n")


def test_a_cache_that_cannot_be_written_is_named(minedraft):
    result = minedraft("fetch", "smollm2", "--cache-dir", "/proc/nope")
    assert result.exit_code == 1
    assert "\nerror: cache directory /proc/nope cannot be used: " in f"\n{result.stderr}"
