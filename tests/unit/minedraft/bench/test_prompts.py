from __future__ import annotations

import json

import pytest

from minedraft.bench.prompts import load_prompts
from minedraft.errors import ConfigError


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"question_id": 81, "category": "writing", "turns": ["a", "second turn"]},
        {"turns": ["bb"]},
        {"turns": ["ccc"]},
        {"turns": ["dddd"]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def test_both_forms_give_their_first_turns(file):
    assert load_prompts(file) == ("a", "bb", "ccc", "dddd")


def test_a_limit_picks_evenly_over_the_file(file):
    assert load_prompts(file, limit=2) == ("a", "ccc")


def test_a_limit_above_the_file_repeats_it(file):
    assert load_prompts(file, limit=6) == ("a", "bb", "ccc", "dddd", "a", "bb")


def test_long_prompts_are_left_out_before_the_limit_counts(file):
    assert load_prompts(file, max_chars=2, limit=2) == ("a", "bb")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", ":2: not JSON"),
        ("[]", ":2: want an object with `turns`"),
        ('{"turns": []}', ":2: want"),
        ('{"turns": [3]}', ":2: want"),
        ('{"prompt": "x"}', ":2: want"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"turns": ["ok"]}\n' + line + "\n")
    with pytest.raises(ConfigError, match=message):
        load_prompts(path)


def test_no_file_and_no_prompt_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_prompts(tmp_path / "none.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="no prompt"):
        load_prompts(empty)
