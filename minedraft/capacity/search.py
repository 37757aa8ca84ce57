"""Finds the layouts that answer best, in closed form. Pure.

A layout carries a rate if its largest batch that fits and keeps the SLO has a tenth to spare: at
the very limit queues grow without end. Among those that carry the most of what is asked, in steps
of a tenth, the one with the least time per token over the range of rates is best; then the one with
fewer devices. Closed form knows rates no better than that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.capacity.layout import layouts
from minedraft.capacity.memory import memory
from minedraft.capacity.price import price
from minedraft.errors import ConfigError
from minedraft.plans import MAX_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minedraft.capacity.layout import Layout
    from minedraft.capacity.memory import Memory
    from minedraft.capacity.price import Price
    from minedraft.capacity.question import Question

HEADROOM: Final = 0.9
"""Share of the highest rate that counts as carried."""
SIZES: Final = (
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160,
    192, 224, 256, 320, 384, 448, 512, 640, 768, 896, MAX_ROWS,
)  # fmt: skip
"""Batch sizes that are tried."""
_STEP: Final = math.log(1.1)
MAX_LAYOUTS: Final = 200_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout, what it carries, and the batch size for it."""

    layout: Layout
    asked_rate: float
    """The highest."""
    carried_rate: float
    """Requests per second of all groups together, at most what is asked."""
    most_rate: float
    """The same without that bound."""
    prices: tuple[Price | None, ...]
    """At each rate that was asked, with as many rows as it fills; None: not carried."""
    usual: Price
    """The same at the carried rate."""
    batch_size: int
    """Least places of a batch that carry that rate with a tenth to spare."""
    memory: Memory
    """At that batch size."""

    @property
    def score(self) -> tuple[int, float, int]:
        """Smaller is better: steps below what is asked, time per token, devices."""
        steps = math.ceil(math.log(self.asked_rate / self.carried_rate) / _STEP - 1e-9)
        times = [(each or self.usual).tpot_ms for each in self.prices]
        mean = math.exp(sum(map(math.log, times)) / len(times))
        return (max(steps, 0), round(mean, 6), self.layout.num_devices)


def search(question: Question, told: Callable[[int], None] = lambda _done: None) -> list[Candidate]:
    """Price every layout.

    Args:
        question: What is asked.
        told: Called with the number of layouts that were priced.

    Returns:
        The best of each structure, best first.

    Raises:
        ConfigError: nothing fits, or nothing keeps the SLO; says by how much not.
    """
    best: dict[tuple[object, ...], Candidate] = {}
    tried = []
    for done, layout in enumerate(layouts(question), 1):
        if done > MAX_LAYOUTS:
            raise ConfigError(
                f"gpus: more than {MAX_LAYOUTS} layouts; name fewer kinds or drafters"
            )
        tried.append(layout)
        found = evaluate(layout, question)
        if found is not None:
            known = best.get(layout.structure)
            if known is None or found.score < known.score:
                best[layout.structure] = found
        told(done)
    if not best:
        raise ConfigError(_why_nothing(tried, question))
    return sorted(best.values(), key=lambda each: each.score)


def evaluate(layout: Layout, question: Question) -> Candidate | None:
    """Price one layout; None: it does not fit, or keeps no SLO."""
    costs, known = layout.costs(question), {}

    def priced(size: int) -> Price:
        if size not in known:
            known[size] = price(layout, question, size, costs)
        return known[size]

    def may(size: int) -> bool:
        at = priced(size)
        return (
            memory(layout, question, size).missing == 0
            and at.tpot_ms <= question.slo.tpot_ms
            and at.ttft_ms <= question.slo.ttft_ms
        )

    # All of these only rise with the size, so a bisection finds each.
    sizes = SIZES[: bisect_left(SIZES, True, key=lambda size: not may(size))]
    places = math.ceil(question.concurrency / layout.num_groups / layout.num_batches)
    large = [size for size in sizes if size >= places]
    if not large:
        return None

    def rate(size: int) -> float:
        return layout.num_groups * priced(size).rate(question.output_tokens)

    def filled(wanted: float) -> Price | None:
        """As many rows as a rate fills, if that leaves a tenth to spare."""
        if wanted > most * (1 + 1e-9):
            return None
        return priced(sizes[min(bisect_left(sizes, wanted, key=rate), len(sizes) - 1)])

    most = HEADROOM * rate(large[-1])
    carried = min(most, question.highest_rate)
    place = bisect_left(large, carried / HEADROOM * (1 - 1e-9), key=rate)
    batch_size = large[min(place, len(large) - 1)]
    return Candidate(
        layout,
        question.highest_rate,
        carried,
        most,
        tuple(map(filled, question.rates)),
        filled(carried) or priced(large[-1]),
        batch_size,
        memory(layout, question, batch_size),
    )


def _why_nothing(tried: Iterable[Layout], question: Question) -> str:
    """Say what is in the way of the layout that is nearest to fitting."""
    least, nearest = math.inf, None
    for layout in tried:
        per_group = math.ceil(question.concurrency / layout.num_groups / layout.num_batches)
        lacks = memory(layout, question, max(per_group, 1))
        if lacks.missing < least:
            least, nearest = lacks.missing, layout
    if nearest is None:
        return (
            f"gpus: {question.target.name} has {question.target.num_kv_heads} heads of keys and "
            f"values, so it is shared by a divisor of that many devices; tp={question.tp} does not "
            "do, or there are fewer"
        )
    if least > 0:
        places = question.num_places
        kv = question.concurrency * question.target.kv_bytes * places / 1e9
        weights = question.target.held_bytes / nearest.tp / 1e9
        return (
            f"memory: {question.target.name} does not fit. Nearest is {nearest.tp} x "
            f"{nearest.device.name}: it lacks {least / 1e9:.1f} GB per device of the "
            f"{nearest.device.memory / 1e9:.0f} GB it has. Weights take {weights:.1f} GB of each; "
            f"{question.concurrency} x {places} tokens take {kv:.1f} GB of all together"
        )
    slo, fastest = question.slo, math.inf
    named = {"tpot": slo.tpot_ms, "ttft": slo.ttft_ms}
    asked = [f"{name}={ms:g} ms" for name, ms in named.items() if ms < math.inf]
    for layout in tried:
        fastest = min(fastest, price(layout, question, 1, layout.costs(question)).tpot_ms)
    return (
        f"slo: no layout keeps {' and '.join(asked)}; "
        f"the least time per token of one request alone is {fastest:.1f} ms"
    )
