"""Names and settings of the policies, and where each can be. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from minedraft.errors import ConfigError
from minedraft.plans import MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.types import Acceptance

POLICIES: Final = ("fixed", "schedule", "goodput", "tetris", "adaspec", "dspark", "wcs")
"""What `--policy` takes."""
SELECTING: Final = frozenset({"tetris", "adaspec", "dspark", "wcs"})
"""Those that have the verifier choose among drafts by their scores."""
MAX_RANGES: Final = 64
"""Of a schedule."""
MAX_CHARS: Final = 4096
"""Of the text of a schedule."""
MAX_BUDGET: Final = MAX_ROWS * MAX_DRAFT_TOKENS
_SCHEDULE: Final = "num_speculative_tokens_per_batch_size"
_NUM_FIELDS: Final = 3
_MAX_SLO_MS: Final = 1e6
_SHOWN: Final = 80


class Range(NamedTuple):
    """So many draft tokens for batches of these sizes."""

    first: int
    last: int
    num_draft_tokens: int


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """See the module docstring."""

    num_speculative_tokens_per_batch_size: str = ""
    """Policy schedule: JSON, k by batch size as [[first, last, k], ...] or {"first-last": k}."""
    tetris_capacity: int = 0
    """Policy tetris: most drafts verified per step. 0: k per row that decodes."""
    tetris_extra_proposals: int = 3
    """Policy tetris: draft tokens per row over k."""
    tpot_slo_ms: float = 0.0
    """Longest expected time per output token of any request, which adaptive policies keep if they
    can. 0: none."""

    def __post_init__(self) -> None:
        _range("tetris_capacity", self.tetris_capacity, 0, MAX_BUDGET)
        _range("tetris_extra_proposals", self.tetris_extra_proposals, 0, MAX_DRAFT_TOKENS)
        _range("tpot_slo_ms", self.tpot_slo_ms, 0, _MAX_SLO_MS)
        if self.num_speculative_tokens_per_batch_size:
            read_schedule(self.num_speculative_tokens_per_batch_size)


def check_policy(name: str, options: PolicyOptions, *, acceptance: str = "") -> None:
    """Refuse a policy that there is not, that lacks a setting, or that would change outputs.

    Args:
        name: Of the policy.
        options: Of all policies.
        acceptance: Rule of the verifier; empty: not known yet.

    Raises:
        ConfigError: names the field and the value.
    """
    if name not in POLICIES:
        raise ConfigError(f"policy={name[:_SHOWN]!r}, want one of {', '.join(POLICIES)}")
    if name == "schedule" and not options.num_speculative_tokens_per_batch_size:
        raise ConfigError(
            f"{_SCHEDULE}='': policy {name} needs one, such as [[1, 16, 4], [17, 64, 1]]"
        )
    if name in SELECTING and acceptance == Acceptance.REJECTION.value:
        raise ConfigError(
            f"policy={name!r}: it has drafts chosen by their scores, which acceptance "
            f"{acceptance!r} does not bear; want acceptance coupled, or policy fixed"
        )


def check_length(name: str, options: PolicyOptions, *, k: int, most: int) -> None:
    """Refuse a policy whose drafts do not fit into a packet of the token link.

    Args:
        name: Of the policy.
        options: Of all policies.
        k: Of the service.
        most: Draft tokens per row that packets have room for.

    Raises:
        ConfigError: they do not.
    """
    if k and k + extra_draft_tokens(name, options) > most:
        raise ConfigError(
            f"tetris_extra_proposals={options.tetris_extra_proposals}: {name} drafts so much "
            f"more than num_draft_tokens={k}, want at most max_draft_tokens={most} together"
        )


def extra_draft_tokens(name: str, options: PolicyOptions) -> int:
    """Draft tokens per row that a policy may ask for over k."""
    return options.tetris_extra_proposals if name == "tetris" else 0


def read_schedule(text: str) -> tuple[Range, ...]:
    """Read k by batch size, smallest sizes first.

    Sizes between two ranges have the k of the smaller one, sizes beyond the last range its k.

    Raises:
        ConfigError: it is no JSON of either form, a range is no range, two of them overlap, or the
            first does not begin at 1.
    """
    if len(text) > MAX_CHARS:
        raise _bad(text, f"at most {MAX_CHARS} characters")
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: [_spread(*each) for each in pairs])
    except (ValueError, RecursionError):
        raise _bad(text, 'JSON such as [[1, 16, 4], [17, 64, 1]] or {"1-16": 4, "17-64": 1}') from (
            None
        )
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_RANGES:
        raise _bad(text, f"a list or an object of 1..{MAX_RANGES} ranges")
    ranges = sorted(_read(entry) for entry in found)
    for before, after in pairwise(ranges):
        if after.first <= before.last:
            raise _bad([*after], f"no overlap; the range before ends at {before.last}")
    if ranges[0].first != 1:
        raise _bad([*ranges[0]], "the first range to begin at 1")
    return tuple(ranges)


def _spread(sizes: str, num_draft_tokens: object) -> list[object]:
    """Turn an entry of an object into one of a list."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", sizes)
    if match is None:
        return [sizes]  # refused by its length
    return [int(match[1]), int(match[2] or match[1]), num_draft_tokens]


def _read(entry: object) -> Range:
    if not isinstance(entry, list) or len(entry) != _NUM_FIELDS:
        raise _bad(entry, "first size, last size and k per range")
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in entry):
        raise _bad(entry, "whole numbers")
    found = Range(*entry)
    if not 1 <= found.first <= found.last <= MAX_ROWS:
        raise _bad(entry, f"sizes 1..{MAX_ROWS}, the first one not over the last")
    if not 0 <= found.num_draft_tokens <= MAX_DRAFT_TOKENS:
        raise _bad(entry, f"k 0..{MAX_DRAFT_TOKENS}")
    return found


def _bad(value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{_SCHEDULE}={str(value)[:_SHOWN]!r}: want {wanted}")


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # a NaN is in no range
        raise ConfigError(f"{name}={value}, want {low:g}..{high:g}")
