"""The loop of turns that benchmarks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.turns import HERE, Peer, compare

PEER = """
import sys
sys.path.insert(0, {benchmarks!r})
import minedraft
from turns import serve
costs = iter({costs})
serve(lambda: next(costs))
"""


def test_the_ratio_is_that_of_rounds_so_a_slow_spell_counts_once():
    base, new = iter([9, 9, 9, 10, 100, 10, 10]), iter([1, 1, 1, 5, 50, 5, 20])
    result = compare(lambda: next(base), lambda: next(new), rounds=4)
    assert (result.base, result.new, result.ratio) == (10, 12.5, 0.5)
    assert result.quartiles == (0.5, 1.625)
    assert "0.500" in str(result)


def test_who_begins_changes_with_each_round():
    order = []
    compare(
        lambda: order.append("base") or 1.0, lambda: order.append("new") or 1.0,
        rounds=2, warm_up=0,
    )  # fmt: skip
    assert order == ["base", "new", "new", "base"]


@pytest.fixture
def script(tmp_path):
    def write(costs):
        path = tmp_path / "peer.py"
        path.write_text(PEER.format(benchmarks=str(HERE / "benchmarks"), costs=costs))
        return str(path)

    return write


def test_a_peer_does_one_turn_per_call(script):
    with Peer(script([1.5, 2.5])) as peer:
        assert [peer(), peer()] == [1.5, 2.5]


def test_a_peer_that_imports_another_checkout_is_refused(script, tmp_path):
    with pytest.raises(SystemExit, match="imported"), Peer(script([1.0]), root=tmp_path):
        pass


def test_a_peer_that_dies_ends_the_comparison(script):
    with Peer(script([])) as peer, pytest.raises(SystemExit, match=r"peer\.py.*ended"):
        peer()


def test_the_checkout_is_this_one():
    assert Path(__file__).parents[2] == HERE
