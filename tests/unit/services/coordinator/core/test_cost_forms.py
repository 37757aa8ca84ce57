from __future__ import annotations

import json
from typing import Any

import pytest

from minedraft.services.coordinator.core.cost_forms import name_of, read_forms, write_forms
from minedraft.services.coordinator.core.model_key import ModelKey
from minedraft.services.coordinator.core.pair_costs import PairCosts

TARGET = ModelKey("t" * 64, "bfloat16", "cpu x1", "c/avx512-bf16")
KEY, OTHER = (TARGET, ModelKey("d" * 64, kind="model")), (TARGET, ModelKey())


def learned() -> PairCosts:
    pair = PairCosts()
    pair.verify.observe(8, 8, 100, 1_000, overlapped=0)
    return pair


def forms() -> dict[str, Any]:
    """As they come from files."""
    written = write_forms({KEY: learned(), OTHER: learned()})
    return json.loads(json.dumps(written, allow_nan=False))


def test_what_was_written_is_read():
    known, refused = read_forms(forms())
    assert refused == {}
    assert list(known) == [KEY, OTHER]
    assert known[KEY].verify_ns(8, 8, 100, overlapped=0) == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda form: form.pop("costs"), "want an object with costs, draft, target"),
        (lambda form: form["costs"].update(version=0), "costs.version is 0, want 1"),
        (
            lambda form: form["costs"]["verify"]["table"]["bins"][0].update(ns=float("nan")),
            "costs.verify.table.bins[0].ns is nan, want 1..1e+18",
        ),
        (lambda form: form["target"].update(device="cuda"), "its name belongs to other models"),
        (lambda form: form["draft"].update(kind=7), "draft.kind: want text"),
    ],
)
def test_what_is_something_else_is_refused_and_the_others_are_read(spoil, why):
    given = forms()
    spoil(given[name_of(KEY)])
    known, refused = read_forms(given)
    assert list(known) == [OTHER]
    assert list(refused) == [name_of(KEY)]
    assert why in refused[name_of(KEY)]


def test_a_form_that_is_no_object_is_refused():
    assert read_forms({"x": [], "y": 7})[0] == {}
