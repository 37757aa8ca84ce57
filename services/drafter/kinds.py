"""The table of kinds of drafters. Imports a kind's code, and torch with it, only on demand."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from minedraft.services.drafter.proposer import DraftContext, Proposer

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "model": "model.ModelProposer",
        "synthetic": "synthetic.SyntheticProposer",
        "oracle": "model.ModelProposer",  # tests: with the target's own weights
        "anti_oracle": "anti_oracle.AntiOracleProposer",
        "scripted": "scripted.ScriptedProposer",
    }
)
"""Name, as `--kind` and `ModelInfo.drafter_kind` have it, to file and class under `proposers`."""


def make_proposer(kind: str, context: DraftContext) -> Proposer:
    """Make the proposer of a kind, one of `KINDS`."""
    file, name = KINDS[kind].split(".")
    module = importlib.import_module(f"minedraft.services.drafter.proposers.{file}")
    make = cast("Callable[[DraftContext], Proposer]", getattr(module, name))
    return make(context)
