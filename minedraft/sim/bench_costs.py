"""Makes a table of costs from the steps of a bench. Pure.

A bench knows durations by rows and drafts, and for what share of a step the other device computed.
What it does not know is taken so: all passes of a draft step cost the same, its first pass feeds
one and a half tokens per row, and steps with prompts are of their mean size.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.cost_table import MAX_COUNT, Bin, CostTable, bin_of
from minedraft.services.coordinator.core.leg_costs import DraftLeg, VerifyLeg
from minedraft.services.coordinator.core.pair_costs import PairCosts
from minedraft.services.coordinator.core.residual import Residual

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from minedraft.bench.step_sizes import StepSize
    from minedraft.sim.bench_file import BenchMode

_ALONE: Final = 0.05
"""Most overlap of a step that counts as alone."""
_MOST_OVERLAP: Final = 4.0
"""Bound of what overlap is believed to cost."""
_FED_PER_ROW: Final = 1.5
_FEW: Final = 3


class _Point(NamedTuple):
    """Passes of about one size."""

    size: float
    rows: float
    context: float
    ns: float
    overlap: float
    weight: int


def costs_of(modes: Iterable[BenchMode], *, own: BenchMode | None = None) -> PairCosts:
    """Make a table from measurements that had the same models on the same cores.

    Args:
        modes: The measurements.
        own: One of them, whose steps count before those of the others: a busy machine is not
            equally busy all the time.

    Raises:
        ConfigError: they have no verify step.
    """
    modes = list(modes)
    verify = {mode.name: list(_verify_points(mode)) for mode in modes}
    draft = {mode.name: list(_draft_points(mode)) for mode in modes}
    if not any(verify.values()):
        raise ConfigError("from: its measurements have no verify step without prompts")
    name = own.name if own is not None else ""
    every = [point for points in verify.values() for point in points]
    overlap = _overlap(every)
    bins = _preferred(verify.get(name, []), every, overlap)
    leg = VerifyLeg(CostTable([*bins, *_prompts(modes, "verify", every)]), Residual(overlap))
    every = [point for points in draft.values() for point in points]
    overlap = _overlap(every)
    further = CostTable(_preferred(draft.get(name, []), every, overlap))
    fed = CostTable(_preferred(_fed(draft.get(name, [])), _fed(every), overlap))
    first = CostTable([*fed.bins, *_prompts(modes, "draft", _fed(every))])
    return PairCosts(leg, DraftLeg(first, further, Residual(overlap)))


def _fed(points: Sequence[_Point]) -> list[_Point]:
    """The same passes, by what a first one feeds."""
    return [point._replace(size=point.size * _FED_PER_ROW) for point in points]


def _preferred(own: Sequence[_Point], every: Sequence[_Point], overlap: float) -> list[Bin]:
    """Bins of `own`, and those of the others that neither repeat nor contradict them."""
    first = _bins(_typical(own), overlap)
    known = {bin_of(each.size) for each in first}
    rest = [
        each
        for each in _bins(_typical(every), overlap)
        if bin_of(each.size) not in known
        and all((each.size > one.size) == (each.ns > one.ns) for one in first)
    ]
    return sorted([*first, *rest], key=lambda each: each.size)


def _typical(points: Sequence[_Point]) -> list[_Point]:
    """Leave out sizes that were seen once or twice, if others were seen more often."""
    return [point for point in points if point.weight >= _FEW] or list(points)


def _verify_points(mode: BenchMode) -> Iterator[_Point]:
    for step in _plain(mode.steps, "verify"):
        context = _mean_context(mode) * step.num_rows
        size = step.num_rows + step.num_draft_tokens
        yield _Point(
            size, step.num_rows, context, step.total_ms * 1e6, step.overlap, step.num_steps
        )


def _draft_points(mode: BenchMode) -> Iterator[_Point]:
    for step in _plain(mode.steps, "draft"):
        if step.num_draft_tokens:
            context = _mean_context(mode) * step.num_rows
            pass_ns = step.total_ms * 1e6 * step.num_rows / step.num_draft_tokens
            yield _Point(
                step.num_rows, step.num_rows, context, pass_ns, step.overlap, step.num_steps
            )


def _plain(steps: Sequence[StepSize], lane: str) -> Iterator[StepSize]:
    for step in steps:
        if step.lane == lane and step.num_rows and not step.num_prefill_rows and step.total_ms > 0:
            yield step


def _mean_context(mode: BenchMode) -> float:
    return fmean(
        asked.arrival.num_prompt_tokens + asked.arrival.max_tokens / 2 for asked in mode.requests
    )


def _overlap(points: Sequence[_Point]) -> float:
    """Cost of a step beside the other device's over one alone."""
    alone = CostTable(_merged([point for point in points if point.overlap <= _ALONE]))
    ratios: list[float] = []
    for point in points:
        expected = alone.estimate(round(point.size), round(point.rows), 0)
        if point.overlap <= _ALONE or expected is None:
            continue
        # What was done alone took its share of the whole; the rest took all other time.
        done_alone = point.ns * (1 - point.overlap) / expected
        if done_alone < 1:
            ratio = point.ns * point.overlap / (1 - done_alone) / expected
            ratios += [ratio] * min(point.weight, MAX_COUNT)
    return min(max(median(ratios), 1 / _MOST_OVERLAP), _MOST_OVERLAP) if ratios else 1.0


def _bins(points: Sequence[_Point], overlap: float) -> list[Bin]:
    """Bins of what steps cost alone; overlapped ones count where no others are."""
    alone = [point for point in points if point.overlap <= _ALONE]
    known = {bin_of(point.size) for point in alone}
    rest = [
        point._replace(ns=point.ns / (1 - point.overlap + point.overlap * overlap))
        for point in points
        if point.overlap > _ALONE and bin_of(point.size) not in known
    ]
    return _merged([*alone, *rest])


def _merged(points: Sequence[_Point]) -> list[Bin]:
    by_bin: dict[int, list[_Point]] = {}
    for point in points:
        by_bin.setdefault(bin_of(point.size), []).append(point)
    return [
        Bin(
            size=_mean(members, "size"),
            rows=_mean(members, "rows"),
            context=_mean(members, "context"),
            ns=_mean(members, "ns"),
            count=min(sum(point.weight for point in members), MAX_COUNT),
        )
        for _, members in sorted(by_bin.items())
    ]


def _mean(points: Sequence[_Point], field: str) -> float:
    total = sum(point.weight for point in points)
    return float(sum(getattr(point, field) * point.weight for point in points) / total)


def _prompts(modes: Sequence[BenchMode], lane: str, plain: Sequence[_Point]) -> list[Bin]:
    """One bin for steps that fed prompts, if they were larger than any other."""
    steps = [
        step for mode in modes for step in mode.steps if step.lane == lane and step.num_prefill_rows
    ]
    num_steps = sum(step.num_steps for step in steps)
    if not num_steps or not plain:
        return []
    modes = [mode for mode in modes if any(step.lane == lane for step in mode.steps)]
    num_tokens = sum(asked.arrival.num_prompt_tokens for mode in modes for asked in mode.requests)
    size = num_tokens / num_steps
    if bin_of(size) <= max(bin_of(point.size) for point in plain):
        return []
    rows = sum(step.num_rows * step.num_steps for step in steps) / num_steps
    ns = sum(step.sum_ms for step in steps) * 1e6 / num_steps
    return [Bin(size=size, rows=rows, context=size, ns=ns, is_rough=True)]
