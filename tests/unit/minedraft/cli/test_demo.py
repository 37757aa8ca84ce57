from __future__ import annotations

import pytest

from minedraft.cli.demo import DEMOS, data_file
from minedraft.errors import ConfigError


@pytest.mark.parametrize("demo", DEMOS.values(), ids=DEMOS)
def test_the_prompts_of_every_demo_are_in_the_checkout(demo):
    from minedraft.bench.prompts import load_prompts

    path = data_file(demo.prompts)
    texts = load_prompts(path, limit=demo.num_prompts, max_chars=demo.max_prompt_chars)
    assert len(set(texts)) == demo.num_prompts


def test_the_context_of_every_demo_fits_its_kv_blocks():
    for demo in DEMOS.values():
        longest = demo.max_prompt_chars // 2 + max(demo.max_tokens, demo.answer_tokens)
        assert 2 * demo.batch * (longest // 16 + 2) <= demo.num_blocks


def test_an_unknown_pair_is_one_line(minedraft):
    result = minedraft("demo", "llama")
    assert result.exit_code == 1
    assert "pair='llama'" in result.stderr


def test_missing_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="from a checkout"):
        data_file("nothing.jsonl")
