"""Reads what `minedraft bench --json` wrote: costs of steps, acceptance, requests and modes.

Refuses in one line that names the file, the field and the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.bench.step_sizes import StepSize
from minedraft.errors import ConfigError
from minedraft.model_files.json_file import read_object
from minedraft.plans import MAX_BATCHES, MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.sim.load import MAX_REQUESTS, Arrival, Load
from minedraft.sim.outputs import AcceptanceModel
from minedraft.types import MAX_MODEL_LEN, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from minedraft.model_files.json_file import JsonObject

MAX_MS: Final = 1e8
"""Longest duration in such a file; over a day."""
_SHRINK: Final = 8.0
"""Drafts that the mean of all requests counts for in the acceptance of one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    arrival: Arrival
    num_draft_tokens: int
    histogram: tuple[int, ...]
    """Entry i: steps with drafts of which i were accepted."""


@dataclass(frozen=True, slots=True)
class BenchMode:
    """One measurement of the bench."""

    name: str
    mode: Mode
    tokens_per_s: float
    step_ms: float
    verify_ms: float
    draft_ms: float
    steps: tuple[StepSize, ...]
    requests: tuple[Asked, ...]

    @property
    def load(self) -> Load:
        """Its requests, as many at once as it had."""
        arrivals = tuple(asked.arrival for asked in self.requests)
        return Load(arrivals, concurrency=self.mode.num_slots)

    @property
    def acceptance(self) -> AcceptanceModel:
        """How its drafts stood, by position and by request."""
        return acceptance_of(self.requests, self.mode.num_draft_tokens)


def read_bench(path: Path) -> Mapping[str, BenchMode]:
    """Read the measurements of a bench by name, in its order.

    Raises:
        ConfigError: there is no such file, or it has no measurement.
        ModelError: a field is missing or out of its range.
    """
    document = read_object(path)
    if document is None:
        raise ConfigError(f"from={str(path)!r}: no such file")
    modes = document.part("modes")
    if modes is None or not modes.values:
        document.refuse("modes", "the measurements of `minedraft bench --json`")
    found = {}
    for name in modes.values:
        part = modes.part(name)
        if part is None:
            modes.refuse(name, "an object")
        found[name] = _mode(name, part)
    return found


def _mode(name: str, part: JsonObject) -> BenchMode:
    requests = part.parts("requests")
    if not 1 <= len(requests) <= MAX_REQUESTS:
        part.refuse("requests", f"a list of 1..{MAX_REQUESTS}, as a bench of this version writes")
    return BenchMode(
        name=name,
        mode=Mode(
            _integer(part, "num_batches", 1, MAX_BATCHES),
            _integer(part, "max_batch_size", 1, MAX_ROWS),
            _integer(part, "num_draft_tokens", 0, MAX_DRAFT_TOKENS),
        ),
        tokens_per_s=_number(part, "tokens_per_s", 1e12),
        step_ms=_number(part, "step_ms_p50", MAX_MS),
        verify_ms=_number(part, "verify_ms_p50", MAX_MS),
        draft_ms=_number(part, "draft_ms_p50", MAX_MS),
        steps=tuple(_step_size(each) for each in part.parts("steps")),
        requests=tuple(_asked(each) for each in requests),
    )


def _step_size(part: JsonObject) -> StepSize:
    lane = part.text("lane")
    if lane not in {"draft", "verify"}:
        part.refuse("lane", "draft or verify")
    return StepSize(
        lane=lane,
        num_rows=_integer(part, "num_rows", 0, MAX_ROWS),
        num_draft_tokens=_integer(part, "num_draft_tokens", 0, MAX_ROWS * MAX_DRAFT_TOKENS),
        num_prefill_rows=_integer(part, "num_prefill_rows", 0, MAX_ROWS),
        num_steps=_integer(part, "num_steps", 1, 2**40),
        total_ms=_number(part, "total_ms_p50", MAX_MS),
        sum_ms=_number(part, "sum_ms", 2**40),
        overlap=_number(part, "overlap", 1.0),
    )


def _asked(part: JsonObject) -> Asked:
    histogram = part.array("acceptance_histogram")
    if len(histogram) > MAX_DRAFT_TOKENS + 1 or not all(
        isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 2**40
        for count in histogram
    ):
        part.refuse("acceptance_histogram", f"at most {MAX_DRAFT_TOKENS + 1} counts")
    arrival = Arrival(
        _integer(part, "num_prompt_tokens", 1, MAX_MODEL_LEN),
        _integer(part, "num_output_tokens", 1, MAX_MODEL_LEN),
        arrival_ns=0,  # the loop is closed: it came when a place was free
    )
    _number(part, "arrival_ms", MAX_MS)
    return Asked(arrival, _integer(part, "num_draft_tokens", 0, 2**40), tuple(histogram))


def _integer(part: JsonObject, field: str, low: int, high: int) -> int:
    value = part.integer(field, low, high)
    if value is None:
        part.refuse(field, f"a whole number from {low} to {high}")
    return value


def _number(part: JsonObject, field: str, high: float) -> float:
    value = part.values.get(field)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= high:
        part.refuse(field, f"a number from 0 to {high:g}")
    return float(value)


def acceptance_of(requests: Sequence[Asked], num_draft_tokens: int) -> AcceptanceModel:
    """Derive how drafts stand from what stood.

    Near its end a request drafts fewer than k, so of the later positions fewer were drafted. How
    many is known for all together only; they are taken to fall evenly from position to position.

    Args:
        requests: With their histograms.
        num_draft_tokens: k.
    """
    width = max((len(asked.histogram) for asked in requests), default=0)
    totals = [
        sum(asked.histogram[i] for asked in requests if i < len(asked.histogram))
        for i in range(width)
    ]
    num_drafts, k = sum(totals), num_draft_tokens
    if not num_drafts or not k:
        return AcceptanceModel()
    num_drafted = sum(asked.num_draft_tokens for asked in requests)
    cut = max(2 * (k * num_drafts - num_drafted) / (k * (k - 1)), 0.0) if k > 1 else 0.0
    kept = [float(sum(totals[j:])) for j in range(width)]
    by_position, num_at_risk = [], float(num_drafts)
    for j in range(1, k + 1):
        num_kept = kept[j] if j < width else 0.0
        by_position.append(min(num_kept / num_at_risk, 1.0) if num_at_risk > 0 else 0.0)
        drafted = max(num_drafts - cut * (j - 1), 1.0)
        num_at_risk = num_kept * max(1 - cut / drafted, 0.0)
    return AcceptanceModel(tuple(by_position), effects=_effects(requests))


def _effects(requests: Sequence[Asked]) -> tuple[float, ...]:
    """Estimate what is particular to each request, in log-odds, shrunken to the mean of all."""
    seen = [_kept_and_refused(asked) for asked in requests]
    num_kept, num_refused = (sum(column) for column in zip(*seen, strict=True))
    mean = (num_kept + 1) / (num_kept + num_refused + 2)
    effects = []
    for kept, refused in seen:
        share = (kept + _SHRINK * mean) / (kept + refused + _SHRINK)
        effects.append(_log_odds(share) - _log_odds(mean))
    return tuple(effects)


def _kept_and_refused(asked: Asked) -> tuple[int, int]:
    num_kept = sum(i * count for i, count in enumerate(asked.histogram))
    last = len(asked.histogram) - 1
    return num_kept, sum(count for i, count in enumerate(asked.histogram) if i < last)


def _log_odds(share: float) -> float:
    bounded = min(max(share, 0.01), 0.99)
    return math.log(bounded / (1 - bounded))
