"""Names and reads the JSON objects in which curves outlive a process, one per drafter. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from minedraft.errors import ConfigError
from minedraft.plans import MAX_DRAFT_TOKENS, Score
from minedraft.selection import NUM_CLASSES
from minedraft.services.coordinator.core.calibration import NUM_BINS, SIGNS, Calibration, Cell
from minedraft.services.coordinator.core.model_key import ModelKey

if TYPE_CHECKING:
    from collections.abc import Sequence

CurveKey: TypeAlias = tuple[ModelKey, ModelKey, Score]
"""Target, drafter, and what its scores are."""
PREFIX: Final = "curves-"
"""Of the names of files."""
VERSION: Final = 1
_MOST: Final = 1e9
"""Labels of one bin."""
_FIELDS = {"group", "position", "counts", "kept"}


def write_forms(known: Mapping[CurveKey, Calibration]) -> dict[str, object]:
    """Return an object per drafter and score, by the name of its file."""
    forms: dict[str, object] = {}
    for key, calibration in known.items():
        calibration.settle()
        forms[name_of(key)] = {
            "version": VERSION,
            "target": key[0]._asdict(),
            "draft": key[1]._asdict(),
            "score": key[2].name,
            "cells": [
                {"group": group, "position": position, "counts": cell.counts, "kept": cell.kept}
                for (group, position), cell in calibration.cells.items()
            ],
        }
    return forms


def read_forms(
    forms: Mapping[str, object],
) -> tuple[dict[CurveKey, Calibration], dict[str, str]]:
    """Read what `write_forms` returned.

    Returns:
        What is known, by models, and why other objects were refused, by name.
    """
    known: dict[CurveKey, Calibration] = {}
    refused: dict[str, str] = {}
    for name, form in forms.items():
        try:
            key, calibration = _read(form)
            if name != name_of(key):
                raise ConfigError("its name belongs to other models")
        except ConfigError as err:
            refused[name] = str(err)
        else:
            known[key] = calibration
    return known, refused


def name_of(key: CurveKey) -> str:
    """Name the file of a drafter."""
    text = json.dumps([key[0], key[1], key[2].name])
    return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _read(form: object) -> tuple[CurveKey, Calibration]:
    wanted = {"version", "target", "draft", "score", "cells"}
    if not isinstance(form, Mapping) or set(form) != wanted:
        raise ConfigError(f"want an object with {', '.join(sorted(wanted))}")
    if form["version"] != VERSION:
        raise ConfigError(f"version is {form['version']!r:.40}, want {VERSION}")
    scores = {score.name: score for score in SIGNS}
    if not isinstance(form["score"], str) or form["score"] not in scores:
        raise ConfigError(f"score: want one of {', '.join(scores)}")
    score = scores[form["score"]]
    cells = form["cells"]
    if not isinstance(cells, list) or len(cells) > NUM_CLASSES * MAX_DRAFT_TOKENS:
        raise ConfigError(f"cells: want a list of at most {NUM_CLASSES * MAX_DRAFT_TOKENS}")
    read = dict(_cell(each, f"cells[{index}]") for index, each in enumerate(cells))
    if len(read) != len(cells):
        raise ConfigError("cells: two of them are of the same class and position")
    key = (
        ModelKey.from_json(form["target"], "target"),
        ModelKey.from_json(form["draft"], "draft"),
        score,
    )
    return key, Calibration(score, read)


def _cell(form: object, name: str) -> tuple[tuple[int, int], Cell]:
    if not isinstance(form, Mapping) or set(form) != _FIELDS:
        raise ConfigError(f"{name}: want an object with {', '.join(sorted(_FIELDS))}")
    at = (
        _whole(form["group"], f"{name}.group", NUM_CLASSES - 1),
        _whole(form["position"], f"{name}.position", MAX_DRAFT_TOKENS - 1),
    )
    counts = _bins(form["counts"], f"{name}.counts", [_MOST] * NUM_BINS)
    return at, Cell(counts, _bins(form["kept"], f"{name}.kept", counts))


def _bins(form: object, name: str, most: Sequence[float]) -> list[float]:
    if not isinstance(form, list) or len(form) != NUM_BINS:
        raise ConfigError(f"{name}: want a list of {NUM_BINS} numbers")
    for index, (number, high) in enumerate(zip(form, most, strict=True)):
        # A bool is an int; a NaN is in no range.
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{name}[{index}] is a {type(number).__name__}, want a number")
        if not 0 <= number <= high:
            raise ConfigError(f"{name}[{index}] is {number}, want 0..{high:g}")
    return [float(number) for number in form]


def _whole(form: object, name: str, most: int) -> int:
    if isinstance(form, bool) or not isinstance(form, int) or not 0 <= form <= most:
        shown = form if isinstance(form, int | float) else type(form).__name__
        raise ConfigError(f"{name} is {shown}, want a whole number 0..{most}")
    return form
