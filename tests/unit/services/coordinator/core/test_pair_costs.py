from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.pair_costs import MAX_BINS, PairCosts


def learned() -> PairCosts:
    pair = PairCosts()
    for size in (5, 10, 20, 40, 80) * 10:
        rows = size // 5
        for overlapped in (0, 1):
            busy = 1 + overlapped / 4
            pair.verify.observe(
                size, rows, 100 * rows, int(1e6 * (10 + size) * busy), overlapped=overlapped
            )
            pair.draft.observe(
                (rows,) * 4, rows, 100 * rows, int(1e6 * (8 + rows) * busy), overlapped=overlapped
            )
    return pair


def estimates(pair: PairCosts) -> list[float | None]:
    return [
        value
        for overlapped in (0, 0.5, 1)
        for size in (1, 7, 20, 100)
        for value in (
            pair.verify_ns(size, 2, 300, overlapped=overlapped),
            pair.draft_ns((size,) * 3, size + 2, 300, overlapped=overlapped),
        )
    ]


def test_it_survives_its_json_form():
    pair = learned()
    form = json.loads(json.dumps(pair.to_json(), allow_nan=False))
    assert estimates(PairCosts.from_json(form)) == pytest.approx(estimates(pair))
    assert estimates(pair)[0] is not None


def test_what_is_not_known_survives_too():
    form = json.loads(json.dumps(PairCosts().to_json()))
    assert set(estimates(PairCosts.from_json(form))) == {None}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), [], "costs: want an object with draft, verify, version"),
        (("version",), 2, "costs.version is 2, want 1"),
        (("verify",), None, "costs.verify: want an object with overlap, table"),
        (("verify", "extra"), 1, "costs.verify: want an object"),
        (("verify", "overlap", "ratio"), math.nan, "costs.verify.overlap.ratio is nan"),
        (("verify", "overlap", "ratio"), 1e9, "overlap.ratio is 1000000000.0, want 0.01..100"),
        (("draft", "overlap", "ratio"), True, "costs.draft.overlap.ratio is True"),
        (("draft", "overlap", "count"), 33, "costs.draft.overlap.count is 33, want 0..32"),
        (("draft", "first", "bins"), {}, "costs.draft.first.bins: want a list of at most 160"),
        (("draft", "further", "bins", 0, "ns"), math.nan, r"costs.draft.further.bins\[0\].ns is"),
        (("draft", "further", "bins", 0, "ns"), "7", r"bins\[0\].ns is str"),
        (("draft", "further", "bins", 0, "ns"), math.inf, r"bins\[0\].ns is inf"),
        (("verify", "table", "bins", 1, "ns"), 0, r"costs.verify.table.bins\[1\].ns is 0, want 1"),
        (("verify", "table", "bins", 1, "tokens"), 10**400, r"bins\[1\].tokens is 1000"),
        (("verify", "table", "bins", 1, "rows"), -1, r"bins\[1\].rows is -1, want 0"),
        (("verify", "table", "bins", 1, "context"), None, r"bins\[1\].context is NoneType"),
        (("verify", "table", "bins", 1, "count"), 0, r"bins\[1\].count is 0"),
        (("verify", "table", "bins", 1, "is_rough"), 1, r"bins\[1\].is_rough is 1"),
        (("verify", "table", "bins", 1), 7, r"costs.verify.table.bins\[1\]: want an object"),
        (("verify", "table", "bins", 1, "tokens"), 5.5, "two of them hold the same sizes"),
        (("verify", "table", "row_slope", "sum_xx"), -1, "row_slope.sum_xx is -1"),
        (("draft", "first", "context_slope", "count"), math.nan, "context_slope.count is nan"),
    ],
)
def test_a_form_that_is_none_is_refused_by_field_and_value(path, value, message):
    form: Any = copy.deepcopy(learned().to_json())
    place: Any = {"": form}
    for key in ("", *path)[:-1]:
        place = place[key]
    place[("", *path)[-1]] = value
    with pytest.raises(ConfigError, match=message):
        PairCosts.from_json(form if path else value)


def test_a_form_with_more_sizes_than_there_are_is_refused():
    form: Any = learned().to_json()
    form["verify"]["table"]["bins"] *= MAX_BINS
    with pytest.raises(ConfigError, match="want a list of at most 160"):
        PairCosts.from_json(form)
