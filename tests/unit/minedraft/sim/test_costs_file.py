from __future__ import annotations

import json

import pytest

from minedraft.errors import ConfigError, ModelError
from minedraft.services.coordinator.core.pair_costs import PairCosts
from minedraft.sim.costs_file import read_costs


def form():
    costs = PairCosts()
    costs.verify.observe(16, 4, 0, 30_000_000, overlapped=0)
    costs.draft.observe((4, 4), 6, 0, 8_000_000, overlapped=0)
    return costs.to_json()


def test_costs_come_back(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(form()))
    costs = read_costs(path)
    assert costs.verify_ns(16, 4, 0, overlapped=0) == pytest.approx(30e6)
    assert costs.draft_ns((4, 4), 6, 0, overlapped=0) == pytest.approx(8e6)


def test_a_file_of_a_coordinators_cache_will_do(tmp_path):
    path = tmp_path / "costs-1.json"
    path.write_text(json.dumps({"target": {}, "draft": {}, "costs": form()}))
    assert read_costs(path).verify_ns(16, 4, 0, overlapped=0) == pytest.approx(30e6)


def test_what_is_wrong_is_named_with_file_and_field(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({**form(), "version": 99}))
    with pytest.raises(ConfigError, match=r"costs.json: costs.version is 99"):
        read_costs(path)
    path.write_text('{"version": NaN}')
    with pytest.raises(ModelError, match=r"costs.json: is no JSON: NaN"):
        read_costs(path)
    with pytest.raises(ConfigError, match="no such file"):
        read_costs(tmp_path / "none.json")
