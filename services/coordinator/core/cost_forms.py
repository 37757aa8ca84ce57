"""Names and reads the JSON objects in which costs outlive a process, one per pair. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.model_key import ModelKey
from minedraft.services.coordinator.core.pair_costs import PairCosts

if TYPE_CHECKING:
    from minedraft.services.coordinator.core.model_key import PairKey


def write_forms(pairs: Mapping[PairKey, PairCosts]) -> dict[str, object]:
    """Return an object per pair, by the name of its file."""
    return {
        name_of(key): {
            "target": key[0]._asdict(),
            "draft": key[1]._asdict(),
            "costs": costs.to_json(),
        }
        for key, costs in pairs.items()
    }


def read_forms(
    forms: Mapping[str, object],
) -> tuple[dict[PairKey, PairCosts], dict[str, str]]:
    """Read what `write_forms` returned.

    Returns:
        What is known, by models, and why other objects were refused, by name.
    """
    known: dict[PairKey, PairCosts] = {}
    refused: dict[str, str] = {}
    for name, form in forms.items():
        try:
            key, costs = _read(form)
            if name != name_of(key):
                raise ConfigError("its name belongs to other models")
        except ConfigError as err:
            refused[name] = str(err)
        else:
            known[key] = costs
    return known, refused


def name_of(key: PairKey) -> str:
    """Name the file of a pair."""
    return f"costs-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]}"


def _read(form: object) -> tuple[PairKey, PairCosts]:
    if not isinstance(form, Mapping) or set(form) != {"target", "draft", "costs"}:
        raise ConfigError("want an object with costs, draft, target")
    key = (
        ModelKey.from_json(form["target"], "target"),
        ModelKey.from_json(form["draft"], "draft"),
    )
    return key, PairCosts.from_json(form["costs"])
