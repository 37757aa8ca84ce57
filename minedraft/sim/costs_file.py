"""Reads a table of costs: the JSON form of `PairCosts`, or a file of a `--cost-cache`.

Refuses in one line with file and field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import ConfigError
from minedraft.model_files.json_file import read_object
from minedraft.services.coordinator.core.pair_costs import PairCosts

if TYPE_CHECKING:
    from pathlib import Path


def read_costs(path: Path) -> PairCosts:
    """Read a table of costs.

    Raises:
        ConfigError: there is no such file, or a field is missing or out of its range.
        ModelError: it cannot be read.
    """
    document = read_object(path)
    if document is None:
        raise ConfigError(f"costs={str(path)!r}: no such file")
    try:
        # A file of a cache also says of which models they are.
        return PairCosts.from_json(document.values.get("costs", document.values))
    except ConfigError as err:
        raise ConfigError(f"{path}: {err}") from None
