"""A line of `faults.py`: two drafters, one of them stopped, and the batch that is not its own.

The fleet is one of its own, two drafters on one core; the one of `faults.py` is idle meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from fault_costs import NUM_RUNNING, Bench
from fleet import Fleet, is_up, until
from lines import Line
from steady_load import SteadyLoad

from minedraft.client import Client

if TYPE_CHECKING:
    from minedraft.admin import Span

STOPPED_S = 8.0
OTHER = 0
"""The batch that is looked at: the drafter with the older link drafts for it."""


async def stopped_drafter(bench: Bench) -> list[Line]:
    """SIGSTOP of one of two drafters for 8 s: throughput of the other batch, over that before."""
    rounds = bench.repeats(6, 2)
    task = bench.progress.add_task("one of two drafters stopped", total=rounds)
    green = bench.fleet.another_drafter(bench.pair.draft_dir, core=max(os.sched_getaffinity(0)))
    await green.start()
    fleet = Fleet(
        bench.pair.target_dir,
        bench.pair.draft_dir,
        bench.fleet.log_dir,
        workers=bench.fleet.workers,
        coordinator=bench.fleet.coordinator,
        also_drafters=(green.address,),
        is_pinned=True,
    )
    ratios, rates, idle = [], [], []
    try:
        async with fleet, await Client.connect(fleet.address) as client:
            drafters = {s.address: s for s in (fleet.services["drafter"], green)}
            load = SteadyLoad(client, bench.load.requests, NUM_RUNNING)
            load.reference = bench.load.reference
            inner = Bench(fleet, client, load, bench.is_quick, bench.progress, bench.pair)
            await until(client, is_up)
            async with load.running():
                for _ in range(rounds):
                    await inner.settled()
                    await asyncio.sleep(1.0)
                    calm = time.time_ns()
                    await asyncio.sleep(STOPPED_S)
                    status = await client.status()
                    linked = [w for w in status.workers if w.address in drafters]
                    newest = max(linked, key=lambda worker: worker.link_epoch)
                    stopped = drafters[newest.address]
                    began = time.time_ns()
                    stopped.signal(signal.SIGSTOP)
                    try:
                        await asyncio.sleep(STOPPED_S)
                    finally:
                        stopped.signal(signal.SIGCONT)
                    ended = time.time_ns()
                    spans = await inner.verifies(calm)
                    before, during = _rate(spans, calm, began), _rate(spans, began, ended)
                    rates.append((before, during))
                    ratios.append(during / before)
                    idle.append(_longest_pause_s(spans, began, ended))
                    bench.advance(task)
    finally:
        await green.stop()
    bench.load.num_done += load.num_done
    bench.load.failures += load.failures
    bench.load.changed += load.changed
    bench.raw["stopped_drafter"] = {"rates": rates, "longest_pauses_s": idle}
    before, during = (statistics.median(column) for column in zip(*rates, strict=True))
    return [
        Line(
            "one of two drafters stopped for 8 s: the other batch's throughput over undisturbed",
            statistics.median(ratios),
            0.9,
            at_most=False,
            detail=f"{during:.1f} over {before:.1f} tokens/s, {min(ratios):.2f} to "
            f"{max(ratios):.2f} in {rounds} rounds; its longest pause {max(idle):.2f} s",
        )
    ]


def _rate(spans: list[Span], begin_ns: int, end_ns: int) -> float:
    """Tokens per second that the looked-at batch committed between two moments."""
    tokens = sum(s.num_tokens for s in spans if s.batch == OTHER and begin_ns <= s.end_ns < end_ns)
    return tokens / ((end_ns - begin_ns) / 1e9)


def _longest_pause_s(spans: list[Span], begin_ns: int, end_ns: int) -> float:
    """Longest time between the ends of two steps of the looked-at batch."""
    ends = [s.end_ns for s in spans if s.batch == OTHER and begin_ns <= s.end_ns < end_ns]
    edges = [begin_ns, *ends, end_ns]
    return max(b - a for a, b in pairwise(edges)) / 1e9
