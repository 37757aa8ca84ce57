"""The theorem's curve, the charts and the tables of `make results`."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import pytest

from tests.architecture.sources import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import chart
import results
import tables
from paper_checks import theory
from paper_checks.pairs import PAIRS


@pytest.mark.parametrize("at", theory.EXPECTED)
def test_the_ratio_is_what_theory_says(at):
    assert theory.ratio(at) == pytest.approx(theory.EXPECTED[at], rel=0.01)


def test_the_most_is_half_the_time_and_is_where_both_draft_for_v():
    points = [(theory.ratio(0.01 * step), 0.01 * step) for step in range(1, 1000)]
    best, at = max(points)
    assert best == pytest.approx(2.0, rel=1e-4)
    assert at == pytest.approx(1.256, abs=0.02)


@pytest.mark.parametrize(("sync", "wanted"), [(0.1, 1.90), (0.5, 1.67)])
def test_what_both_sides_wait_for_lowers_it(sync, wanted):
    assert theory.ratio(1.68, sync) == pytest.approx(wanted, abs=0.015)
    assert theory.ratio(1e-3, sync) < theory.ratio(1e-3)


def test_the_lines_of_the_theorem_are_met():
    assert all(line.is_met for line in theory.lines(theory.measure()))


def test_the_chart_of_the_theorem_is_a_picture_with_both_points():
    text = chart.render([results.of_theory(theory.measure())])
    assert ET.fromstring(text).tag.endswith("svg")
    assert "50 % less time" in text
    assert "37 %" in text


def test_a_table_has_a_row_per_figure_of_the_paper():
    rows = {"a": {"batch": 70.0, "gpu": 40.0}}
    report = {"theirs": {"a": ["Arena", 70.32]}, "ours": {"H100": rows, "A100": rows}}
    assert list(tables.of_paper_tables(report))[-1] == "| a | Arena | +70.3 | +70 | - | +40 |"


def test_every_pair_has_costs_on_a_card():
    for pair in PAIRS.values():
        costs = pair.costs("A100")
        verify = costs.verify_ns(16 * 5, 16, 16 * 400, overlapped=0)
        assert 0 < costs.draft_ns((16,), 32, 16 * 400, overlapped=0) < verify
