"""The measurements of `faults.py`: one function each, a running fleet in, lines out.

Figures are ratios within the run or numbers of steps: a busy machine slows both sides of each.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fleet import is_up, until
from lines import Line

from minedraft.bench.steady import Steady, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fleet import Fleet, Service
    from rich.progress import Progress, TaskID
    from steady_load import SteadyLoad

    from minedraft.admin import Span
    from minedraft.client import Client
    from minedraft.hub.pairs import Pair

NUM_BATCHES, BATCH, K = 2, 8, 4
NUM_RUNNING = NUM_BATCHES * BATCH


@dataclass
class Bench:
    """What every measurement gets."""

    fleet: Fleet
    client: Client
    load: SteadyLoad
    is_quick: bool
    progress: Progress
    pair: Pair
    raw: dict[str, Any] = field(default_factory=dict)

    def repeats(self, full: int, quick: int) -> int:
        """How often to do something."""
        return quick if self.is_quick else full

    def advance(self, task: TaskID) -> None:
        """One more is done; said in a line where there is no terminal."""
        self.progress.advance(task)
        if not self.progress.console.is_terminal:
            of = next(each for each in self.progress.tasks if each.id == task)
            self.progress.console.print(f"{of.description}: {of.completed:.0f} of {of.total:.0f}")

    async def settled(self) -> None:
        """Wait until everybody is up and all slots stream with drafts."""
        await until(self.client, is_up)
        while len(self.load.streaming()) < NUM_RUNNING - 2:  # noqa: ASYNC110 nobody tells
            await asyncio.sleep(0.01)

    async def verifies(self, since_ns: int) -> list[Span]:
        """Verify steps that began after a moment, by their end."""
        spans = await self.client.timeline(since_unix_ns=since_ns)
        return sorted(
            (s for s in spans if s.lane == "verify" and s.num_rows), key=lambda s: s.end_ns
        )

    async def steps_after(self, since_ns: int, count: int) -> list[Span]:
        """Wait for that many verify steps that ended after a moment; returns all of them."""
        while True:
            spans = [s for s in await self.verifies(since_ns - 10**10) if s.end_ns > since_ns]
            if len(spans) >= count:
                return spans
            await asyncio.sleep(0.1)


def step_ms(spans: list[Span]) -> float:
    """Device time of a verify step with drafts: the unit of the figures below."""
    return statistics.median(s.timing.total_ns for s in spans if s.num_draft_tokens) / 1e6


async def kills(bench: Bench) -> list[Line]:
    """Kill -9 of the only drafter; and its return."""
    drafter = bench.fleet.services["drafter"]
    num_kills = bench.repeats(20, 4)
    task = bench.progress.add_task("kill -9 of the drafter", total=num_kills)
    figures: dict[str, list[float]] = {
        name: [] for name in ("steps", "lengths", "ms", "back", "load_s")
    }
    all_before: list[Span] = []
    all_after: list[Span] = []
    async with bench.load.running():
        for _ in range(num_kills):
            await bench.settled()
            began = time.time_ns()
            before = await bench.steps_after(began, 12)
            indices = list(bench.load.streaming())
            at = time.time_ns()
            drafter.signal(signal.SIGKILL)
            # A token on its way when the blow fell is none of what follows: 2 ms at most.
            moved = await bench.load.all_moved(indices, at + 2 * 10**6)
            spans = await bench.verifies(began)
            unit = step_ms(before)
            figures["steps"].append(sum(at < span.end_ns <= moved for span in spans))
            figures["ms"].append((moved - at) / 1e6)
            figures["lengths"].append((moved - at) / 1e6 / unit)
            await drafter.stop()
            await drafter.start()
            num_steps, after = await _return(bench, time.time_ns())
            figures["back"].append(num_steps)
            all_before += before
            all_after += after
            figures["load_s"].append(drafter.load_s)
            bench.advance(task)
    was, now = _acceptance(all_before), _acceptance(all_after)
    bench.raw["kills"] = {**figures, "acceptance": [was, now]}
    middle = {name: statistics.median(values) for name, values in figures.items()}
    return [
        Line(
            "kill -9 of the drafter to every request's next token, verify steps",
            middle["steps"],
            2,
            detail=f"{middle['ms']:.0f} ms, {middle['lengths']:.2f} device times of a step with "
            f"drafts; worst of {num_kills}: {max(figures['steps']):.0f} steps, "
            f"{max(figures['ms']):.0f} ms",
        ),
        Line(
            "drafter's return to speculation in every batch, steps beyond its load",
            middle["back"],
            10,
            detail=f"worst {max(figures['back']):.0f}; loading took {middle['load_s']:.1f} s",
        ),
        Line(
            "acceptance after its return over that before",
            now / was,
            0.9,
            at_most=False,
            detail=f"{now:.3f} over {was:.3f}",
        ),
    ]


async def _return(bench: Bench, ready_ns: int) -> tuple[int, list[Span]]:
    """Steps until every batch is drafted for in full, and the steps from there on."""
    while True:
        spans = await bench.steps_after(ready_ns, 1)
        firsts: dict[int, int] = {}
        for number, span in enumerate(spans):
            num_decoding = span.num_rows - span.num_prefill_rows
            if span.num_draft_tokens >= 0.9 * K * num_decoding and num_decoding:
                firsts.setdefault(span.batch, number)
        if len(firsts) == NUM_BATCHES:
            start = max(firsts.values())
            return start, (await bench.steps_after(ready_ns, start + 12))[start:]
        await asyncio.sleep(0.1)


def _acceptance(spans: list[Span]) -> float:
    drafted = sum(s.num_draft_tokens for s in spans)
    return sum(s.num_accepted_tokens for s in spans) / max(drafted, 1)


async def without_drafter(bench: Bench) -> list[Line]:
    """Speculation is on and there is no drafter, against mode ar of the same batch.

    The same requests in both, so the same contexts; which comes first changes from round to round.
    """
    drafter = bench.fleet.services["drafter"]
    await drafter.kill()
    rounds = bench.repeats(6, 2)
    task = bench.progress.add_task("throughput without drafter", total=rounds * 2)
    runs: dict[str, list[Steady]] = {"without": [], "ar": []}
    modes = {"without": (NUM_BATCHES, BATCH, K), "ar": (1, BATCH, 0)}
    for number in range(rounds):
        for name in sorted(modes, reverse=number % 2 == 1):
            runs[name].append(await _steady_run(bench, modes[name]))
            bench.advance(task)
    await until(bench.client, lambda s: s.is_idle)
    await bench.client.set_mode(num_batches=NUM_BATCHES, max_batch_size=BATCH, num_draft_tokens=K)
    await drafter.start()
    await until(bench.client, is_up)
    bench.raw["without_drafter"] = {name: [asdict(s) for s in each] for name, each in runs.items()}
    rates = {name: [s.tokens_per_s for s in each] for name, each in runs.items()}
    ratios = [one / other for one, other in zip(rates["without"], rates["ar"], strict=True)]
    detail = ", ".join(
        f"{name} {statistics.median(rates[name]):.1f} tokens/s with "
        f"V {statistics.median(s.verify_ms for s in each):.0f} ms and a bubble of "
        f"{statistics.median(s.bubble_ms for s in each):.1f} ms"
        for name, each in runs.items()
    )
    return [
        Line(
            "throughput without drafter over mode ar",
            statistics.median(ratios),
            0.95,
            at_most=False,
            detail=f"{detail}; {min(ratios):.2f} to {max(ratios):.2f} in {rounds} rounds",
        )
    ]


async def _steady_run(bench: Bench, mode: tuple[int, int, int]) -> Steady:
    """All requests of the load once, in a mode; what its steady part took."""
    await until(bench.client, lambda s: s.is_idle)
    await bench.client.set_mode(
        num_batches=mode[0], max_batch_size=mode[1], num_draft_tokens=mode[2]
    )
    since = time.time_ns()
    async with asyncio.TaskGroup() as group:
        for asked in bench.load.requests:
            group.create_task(
                bench.client.generate(
                    list(asked.token_ids), temperature=0.0, ignore_eos=True, max_tokens=40
                )
            )
    return measure(await bench.client.timeline(since_unix_ns=since), batch=BATCH)


async def swaps(bench: Bench) -> list[Line]:
    """Hot swaps under load, in place and blue/green in turns."""
    num_swaps = bench.repeats(50, 10)
    task = bench.progress.add_task("hot swaps", total=num_swaps)
    verifier = bench.fleet.services["verifier"]
    green: Service = bench.fleet.another_drafter(
        bench.pair.draft_dir, core=max(os.sched_getaffinity(0))
    )
    await green.start()
    address = [bench.fleet.services["drafter"].address, green.address]
    failed, pid, windows = 0, verifier.pid, []
    begun = len(bench.load.failures)
    try:
        async with bench.load.running():
            await bench.settled()
            rss = verifier.rss_bytes()
            for number in range(num_swaps):
                calm = time.time_ns()
                await asyncio.sleep(2.0)
                began = time.time_ns()
                is_in_place = number % 2 == 0
                try:
                    if is_in_place:
                        await bench.client.swap_drafter(model=str(bench.pair.draft_dir))
                    else:
                        await bench.client.swap_drafter(address=address[1])
                        address.reverse()
                except Exception as err:  # noqa: BLE001 counted, and said
                    failed += 1
                    bench.load.failures.append(f"swap {number}: {err}")
                ended = time.time_ns()
                ratio = bench.load.rate(began, ended) / bench.load.rate(calm, began)
                windows.append((is_in_place, (ended - began) / 1e9, ratio))
                bench.advance(task)
            grown = verifier.rss_bytes() / rss - 1
        if address[0] == green.address:
            await bench.client.swap_drafter(address=address[1])
    finally:
        await green.stop()
    bench.raw["swaps"] = windows
    dips = {
        kind: 1 - statistics.median(w[2] for w in windows if w[0] is kind) for kind in (True, False)
    }
    whole = sum(w[1] for w in windows)
    pooled = 1 - sum(w[1] * w[2] for w in windows) / whole
    lost = len(bench.load.failures) - begun
    return [
        Line(f"requests or swaps that failed in {num_swaps} swaps", lost, 0,
             detail=f"{bench.load.num_done} requests ended well"),
        Line("throughput dip over the swap windows", pooled, 0.25,
             detail=f"median in place {dips[True]:.2f}, blue/green {dips[False]:.2f}; "
             f"a window is {whole / len(windows):.1f} s"),
        Line("growth of the verifier's resident memory", grown, 0.02,
             detail=f"{rss / 2**20:.0f} MiB before; same process: {verifier.pid == pid}"),
    ]  # fmt: skip


async def verifier_restart(bench: Bench) -> list[Line]:
    """Kill -9 of the verifier, against computing the same KV on an idle service."""
    verifier = bench.fleet.services["verifier"]
    repeats = bench.repeats(5, 1)
    task = bench.progress.add_task("kill -9 of the verifier", total=repeats)
    ratios, times = [], []
    for _ in range(repeats):
        async with bench.load.running():
            await bench.settled()
            await asyncio.sleep(1.0)
            indices = list(bench.load.streaming())
            await verifier.kill()
            await asyncio.sleep(0.2)  # what was on its way arrives
            contexts = [
                [*bench.load.requests[slot.asked].token_ids, *slot.token_ids]
                for slot in bench.load.slots
            ]
            await verifier.start()
            ready = time.time_ns()
            back_s = (await bench.load.all_moved(indices, ready) - ready) / 1e9
        await until(bench.client, lambda s: s.is_idle and is_up(s))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for context in contexts:
                group.create_task(bench.client.generate(context, max_tokens=1, temperature=0.0))
        prefill_s = time.perf_counter() - began
        ratios.append(back_s / prefill_s)
        times.append((back_s, prefill_s, verifier.load_s))
        bench.advance(task)
    bench.raw["verifier_restart"] = times
    back_s, prefill_s, load_s = (statistics.median(column) for column in zip(*times, strict=True))
    detail = f"{back_s:.2f} s over {prefill_s:.2f} s, after {load_s:.1f} s of loading"
    return [
        Line("verifier's return to every request's next token, over re-prefilling",
             statistics.median(ratios), 2, detail=detail)
    ]  # fmt: skip


MEASUREMENTS: dict[str, Callable[[Bench], Coroutine[Any, Any, list[Line]]]] = {
    "kills": kills,
    "without_drafter": without_drafter,
    "verifier_restart": verifier_restart,
    "swaps": swaps,
}
