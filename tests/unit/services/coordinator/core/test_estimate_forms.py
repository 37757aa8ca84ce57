from __future__ import annotations

import json
from typing import Any

import pytest

from minedraft.kept_forms import MAX_FILE_BYTES
from minedraft.plans import MAX_DRAFT_TOKENS, Score
from minedraft.selection import NUM_CLASSES
from minedraft.services.coordinator.core.calibration import Calibration
from minedraft.services.coordinator.core.estimate_forms import name_of, read_forms, write_forms
from minedraft.services.coordinator.core.model_key import ModelKey

TARGET, DRAFT = ModelKey("t" * 64), ModelKey("d" * 64, kind="model")
KEY, OTHER = (TARGET, DRAFT, Score.MARGIN), (TARGET, DRAFT, Score.SURPRISAL)


def learned(score: Score) -> Calibration:
    known = Calibration(score)
    for _ in range(20):
        known.observe(0, (0.5, 1.5), 1, range(2), 0.0)
    return known


def forms() -> dict[str, Any]:
    """As they come from files."""
    written = write_forms({KEY: learned(Score.MARGIN), OTHER: learned(Score.SURPRISAL)})
    return json.loads(json.dumps(written, allow_nan=False))


def test_what_was_written_is_read():
    known, refused = read_forms(forms())
    assert refused == {}
    assert list(known) == [KEY, OTHER]
    assert known[KEY].score is Score.MARGIN
    assert known[KEY].mean() == 0.5
    assert write_forms(known) == forms()


def test_the_largest_one_fits_into_a_file():
    known = Calibration(Score.MARGIN)
    for group in range(NUM_CLASSES):
        for _ in range(300):
            scores = tuple(i / 8 for i in range(MAX_DRAFT_TOKENS))
            known.observe(group, scores, 32, range(MAX_DRAFT_TOKENS), 0.0)
            known.observe(group, scores[::-1], 32, range(MAX_DRAFT_TOKENS), 0.0)
    (form,) = write_forms({KEY: known}).values()
    assert len(json.dumps(form)) < MAX_FILE_BYTES / 2


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda form: form.pop("cells"), "want an object with cells, draft, score, target"),
        (lambda form: form.update(version=0), "version is 0, want 1"),
        (lambda form: form.update(score="NONE"), "score: want one of MARGIN, SURPRISAL"),
        (lambda form: form.update(score=[]), "score: want one of MARGIN, SURPRISAL"),
        (lambda form: form.update(cells=[{}] * 97), "cells: want a list of at most 96"),
        (lambda form: form.update(cells=form["cells"][:1] * 2), "two of them are of the same"),
        (lambda form: form["cells"][1].update(group=3), "cells[1].group is 3, want a whole number"),
        (lambda form: form["cells"][1].update(position=True), "cells[1].position is True, want"),
        (lambda form: form["cells"][0].pop("kept"), "cells[0]: want an object with counts, group"),
        (
            lambda form: form["cells"][0]["counts"].__setitem__(3, float("nan")),
            "cells[0].counts[3] is nan, want 0..1e+09",
        ),
        (
            lambda form: form["cells"][0]["kept"].__setitem__(3, 1e6),
            "cells[0].kept[3] is 1000000.0, want 0..0",
        ),
        (
            lambda form: form["cells"][0]["kept"].__setitem__(3, "1"),
            "cells[0].kept[3] is a str, want a number",
        ),
        (lambda form: form["cells"][0]["kept"].pop(), "cells[0].kept: want a list of 17 numbers"),
        (lambda form: form["target"].update(dtype="int8"), "its name belongs to other models"),
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
