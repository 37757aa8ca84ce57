"""Estimates the steps of one target with one drafter, and has a JSON form. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.cost_table import MAX_SIZE, Bin, CostTable, Slope, bin_of
from minedraft.services.coordinator.core.leg_costs import DraftLeg, VerifyLeg
from minedraft.services.coordinator.core.residual import MAX_COUNT, MOST_FACTOR, Residual

VERSION: Final = 1
"""Of the JSON form."""
MAX_BINS: Final = 160
"""Of one table; more sizes than it tells apart."""
_MOST = 1e18
"""Of any number: 30 years in ns."""
_BIN_FIELDS = ("tokens", "rows", "context", "ns", "count")


@dataclass(slots=True)
class PairCosts:
    """Costs of both legs on the machines that they were learned on."""

    verify: VerifyLeg = field(default_factory=VerifyLeg)
    draft: DraftLeg = field(default_factory=DraftLeg)

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """Estimate a verify step.

        Args:
            num_tokens: Tokens that it feeds, committed ones and drafts.
            num_rows: Its rows.
            context: Committed tokens of all its rows together.
            overlapped: Share of it during which the drafter is at work, 0..1; a bool will do.

        Returns:
            Its duration in ns; None while unknown. Never less for more of anything.
        """
        return self.verify.ns(num_tokens, num_rows, context, overlapped=overlapped)

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
    ) -> float | None:
        """Estimate a draft step.

        Args:
            rows_per_depth: Rows that draft a first token, a second one, and so on; never rising.
            num_catch_up_tokens: Committed tokens that it feeds, at least one per row that drafts.
            context: Committed tokens of all its rows together.
            overlapped: Share of it during which the verifier is at work, 0..1; a bool will do.

        Returns:
            Its duration in ns; None while unknown.
        """
        return self.draft.ns(rows_per_depth, num_catch_up_tokens, context, overlapped=overlapped)

    def to_json(self) -> dict[str, object]:
        """Return the form that `from_json` reads: of what is residual, the overlap alone stays."""
        self.verify.settle()
        self.draft.settle()
        return {
            "version": VERSION,
            "verify": {
                "table": _from_table(self.verify.table),
                "overlap": _from_residual(self.verify.residual),
            },
            "draft": {
                "first": _from_table(self.draft.first),
                "further": _from_table(self.draft.further),
                "overlap": _from_residual(self.draft.residual),
            },
        }

    @classmethod
    def from_json(cls, form: object) -> PairCosts:
        """Read what `to_json` returned.

        Raises:
            ConfigError: it is something else; names the field and the value.
        """
        found = _mapping(form, "costs", {"version", "verify", "draft"})
        if found["version"] != VERSION:
            raise ConfigError(f"costs.version is {found['version']!r}, want {VERSION}")
        verify = _mapping(found["verify"], "costs.verify", {"table", "overlap"})
        draft = _mapping(found["draft"], "costs.draft", {"first", "further", "overlap"})
        return cls(
            VerifyLeg(
                _table(verify["table"], "costs.verify.table"),
                _residual(verify["overlap"], "costs.verify.overlap"),
            ),
            DraftLeg(
                _table(draft["first"], "costs.draft.first"),
                _table(draft["further"], "costs.draft.further"),
                _residual(draft["overlap"], "costs.draft.overlap"),
            ),
        )


def _from_table(table: CostTable) -> dict[str, object]:
    return {
        "bins": [
            {
                "tokens": each.size,
                "rows": each.rows,
                "context": each.context,
                "ns": each.ns,
                "count": each.count,
                "is_rough": each.is_rough,
            }
            for each in table.bins
        ],
        "row_slope": _from_slope(table.row_slope),
        "context_slope": _from_slope(table.context_slope),
    }


def _from_residual(residual: Residual) -> dict[str, object]:
    return {"ratio": residual.overlap, "count": residual.count}


def _from_slope(slope: Slope) -> dict[str, object]:
    return {"sum_xx": slope.sum_xx, "sum_xy": slope.sum_xy, "count": slope.count}


def _table(form: object, name: str) -> CostTable:
    found = _mapping(form, name, {"bins", "row_slope", "context_slope"})
    bins = found["bins"]
    if not isinstance(bins, list) or len(bins) > MAX_BINS:
        raise ConfigError(f"{name}.bins: want a list of at most {MAX_BINS}")
    read = [_bin(each, f"{name}.bins[{index}]") for index, each in enumerate(bins)]
    if len({bin_of(each.size) for each in read}) != len(read):
        raise ConfigError(f"{name}.bins: two of them hold the same sizes")
    return CostTable(
        read,
        _slope(found["row_slope"], f"{name}.row_slope"),
        _slope(found["context_slope"], f"{name}.context_slope"),
    )


def _bin(form: object, name: str) -> Bin:
    found = _mapping(form, name, {*_BIN_FIELDS, "is_rough"})
    if not isinstance(found["is_rough"], bool):
        raise ConfigError(f"{name}.is_rough is {found['is_rough']!r}, want true or false")
    return Bin(
        size=_number(found["tokens"], f"{name}.tokens", 1, MAX_SIZE),
        rows=_number(found["rows"], f"{name}.rows", 0),
        context=_number(found["context"], f"{name}.context", 0),
        ns=_number(found["ns"], f"{name}.ns", 1),
        count=int(_number(found["count"], f"{name}.count", 1)),
        is_rough=found["is_rough"],
    )


def _slope(form: object, name: str) -> Slope:
    found = _mapping(form, name, {"sum_xx", "sum_xy", "count"})
    return Slope(
        _number(found["sum_xx"], f"{name}.sum_xx", 0),
        _number(found["sum_xy"], f"{name}.sum_xy", -_MOST),
        int(_number(found["count"], f"{name}.count", 0)),
    )


def _residual(form: object, name: str) -> Residual:
    found = _mapping(form, name, {"ratio", "count"})
    return Residual(
        _number(found["ratio"], f"{name}.ratio", 1 / MOST_FACTOR, MOST_FACTOR),
        _number(found["count"], f"{name}.count", 0, MAX_COUNT),
    )


def _mapping(form: object, name: str, keys: set[str]) -> Mapping[str, object]:
    if not isinstance(form, Mapping) or set(form) != keys:
        raise ConfigError(f"{name}: want an object with {', '.join(sorted(keys))}")
    return form


def _number(form: object, name: str, low: float, high: float = _MOST) -> float:
    # A bool is an int; a NaN is in no range.
    if isinstance(form, bool) or not isinstance(form, int | float) or not low <= form <= high:
        shown = form if isinstance(form, int | float) else type(form).__name__
        raise ConfigError(f"{name} is {shown}, want {low:g}..{high:g}")
    return float(form)
