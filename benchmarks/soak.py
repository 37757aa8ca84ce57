"""`make soak`: random kills, hangs and swaps under a steady load of mixed requests.

Three processes over gloo, the smollm2 pair in fp32. Clients resume by themselves. Every output is
compared with the undisturbed run's; counters must be monotone within a coordinator's life, and
memory, open files and threads of a service must not grow within a life beyond a bound. Exit code 0
if all that held.

    python benchmarks/soak.py [--minutes 10] [--seed 1] [--json OUT]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleet import Fleet, is_up, until
from rich.console import Console
from rich.table import Table
from steady_load import Asked, SteadyLoad

from minedraft.admin import Counters
from minedraft.bench.machine import describe, in_words
from minedraft.bench.prompts import load_prompts
from minedraft.client import NO_RETRIES, Client, RetryPolicy
from minedraft.errors import MineDraftError
from minedraft.hub.pairs import ensure_pair
from minedraft.services.coordinator.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from minedraft.admin import Status

DATA = Path(__file__).parents[1] / "data" / "spec_bench.jsonl"
GREEDY = {"temperature": 0.0}
SEEDED = {"temperature": 0.8, "top_p": 0.95, "seed": 11}
NUM_SLOTS = 8
NUM_TOKENS = 48
SETTLE_S = 8.0
"""A life's figures count from here on: pools and arenas are full by then."""
BLOCKS_BACK_S = 20.0
GROWTH = {"rss": (1.10, 48 * 2**20), "fds": (1.25, 16), "threads": (1.25, 8)}
"""Most growth within a life: by a factor, or by an amount, whichever is more."""
SWAPPED_FACTOR = 1.4
"""Of a drafter's memory, between swaps in place. Over 30 of them 774 MiB became 859 after ten and
909 at the end (oneDNN keeps a kernel for each new number of tokens, up to a limit); a load that
finds the head faster dense than packed, as one in ten did on a busy machine, saves 108 MiB, and it
may be the first. A model that is not let go is a factor of 1.5 at the first swap."""
PATIENT = RetryPolicy(patience_s=120.0, first_delay_s=0.05, max_delay_s=0.5)
console = Console(highlight=False)


@dataclass
class Watch:
    """Looks at the services twice a second; keeps what was wrong."""

    fleet: Fleet
    client: Client
    is_swapping: Callable[[], bool]
    """Whether the drafter holds two models just now; it is not looked at then."""
    wrong: list[str] = field(default_factory=list)
    peaks: dict[tuple[str, int, str], tuple[float, float]] = field(default_factory=dict)
    """By role, life and figure: first and last after it settled."""
    _last: Counters | None = None
    _instance: str = ""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with suppress(MineDraftError):
                self._counters(await self.client.status())
            for role, service in self.fleet.services.items():
                if role == "drafter" and self.is_swapping():
                    continue
                if service.ready_at and time.monotonic() - service.ready_at > SETTLE_S:
                    with suppress(OSError, RuntimeError):  # it may have been killed just now
                        self._figures(role, service.num_lives, service.figures())
            await asyncio.sleep(0.5)

    def _counters(self, status: Status) -> None:
        now, last = status.counters, self._last
        if status.identity.instance_id == self._instance and last is not None:
            for each in fields(Counters):
                if each.name != "num_finished" and getattr(now, each.name) < getattr(
                    last, each.name
                ):
                    self.wrong.append(f"counter {each.name} went back")
        if now.num_accepted_tokens > now.num_draft_tokens:
            self.wrong.append("more tokens accepted than drafted")
        self._last, self._instance = now, status.identity.instance_id

    def _figures(self, role: str, life: int, figures: dict[str, int]) -> None:
        if not figures["rss"]:
            return  # it was killed just now: a zombie has no memory
        for name, value in figures.items():
            first, _ = self.peaks.get((role, life, name), (value, value))
            self.peaks[role, life, name] = (first, value)

    def growth(self) -> list[str]:
        """Say which figures of which lives grew beyond the bound."""
        found = []
        for (role, life, name), (first, last) in self.peaks.items():
            factor, amount = GROWTH[name]
            if (role, name) == ("drafter", "rss"):
                factor = SWAPPED_FACTOR
            if last > max(first * factor, first + amount):
                found.append(f"{role}, life {life}: {name} went from {first:.0f} to {last:.0f}")
        return found


class Chaos:
    """Does something bad every few seconds.

    Args:
        fleet: To whom.
        client: For swaps.
        draft: The draft model, to swap to.
        rng: What and when.
    """

    def __init__(self, fleet: Fleet, client: Client, draft: Path, rng: random.Random) -> None:
        self._fleet = fleet
        self._client = client
        self._draft = draft
        self._rng = rng
        self.done: Counter[str] = Counter()
        self.failed_swaps: list[str] = []
        self.is_swapping = False

    async def run(self, until_s: float) -> None:
        """Until a moment of the monotonic clock; then everybody is up again."""
        while time.monotonic() < until_s:
            await asyncio.sleep(self._rng.uniform(1.0, 4.0))
            role = self._rng.choice(("drafter", "verifier", "coordinator"))
            what = self._rng.choices(("kill", "stop", "freeze", "swap"), (4, 1, 2, 3))[0]
            name = what if what == "swap" else f"{what} {role}"
            console.print(f"{until_s - time.monotonic():5.0f} s left: {name}")
            self.done[name] += 1
            await getattr(self, f"_{what}")(role)
        await until(self._client, is_up)

    async def _kill(self, role: str) -> None:
        service = self._fleet.services[role]
        await service.kill()
        await asyncio.sleep(self._rng.uniform(0.0, 1.0))
        await service.start()

    async def _stop(self, role: str) -> None:
        service = self._fleet.services[role]
        await service.stop()
        await service.start()

    async def _freeze(self, role: str) -> None:
        service = self._fleet.services[role]
        service.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._rng.uniform(0.5, 5.0))
        finally:
            service.signal(signal.SIGCONT)

    async def _swap(self, _role: str) -> None:
        await until(self._client, is_up)
        self.is_swapping = True
        try:
            await self._client.swap_drafter(model=str(self._draft))
        except MineDraftError as err:
            self.failed_swaps.append(f"{type(err).__name__}: {err}")
        finally:
            self.is_swapping = False


async def run(args: argparse.Namespace) -> int:
    pair = await asyncio.to_thread(ensure_pair, "smollm2")
    tokenizer = await asyncio.to_thread(Tokenizer.from_directory, pair.target_dir)
    prompts = load_prompts(DATA, limit=2 * NUM_SLOTS, max_chars=200)
    requests = [
        Asked(tuple(tokenizer.encode(p)), NUM_TOKENS, GREEDY if i % 2 else SEEDED)
        for i, p in enumerate(prompts)
    ]
    console.print(in_words(describe()))
    fleet = Fleet(
        pair.target_dir,
        pair.draft_dir,
        Path(tempfile.mkdtemp(prefix="minedraft-soak-")),
        workers=("--num-blocks=256", "--grace-s=1"),
        coordinator=(
            "--num-batches=2", f"--max-batch-size={NUM_SLOTS // 2}", "--num-draft-tokens=4",
            "--link=gloo", "--grace-s=30",
        ),
        is_pinned=True,
    )  # fmt: skip
    async with fleet:
        client = await Client.connect(fleet.address, retry=PATIENT)
        watcher = await Client.connect(fleet.address, retry=NO_RETRIES)
        async with client, watcher:
            await until(watcher, is_up)
            load = SteadyLoad(client, requests, NUM_SLOTS)
            console.print("undisturbed run")
            await load.learn()
            chaos = Chaos(fleet, watcher, pair.draft_dir, random.Random(args.seed))
            watch = Watch(fleet, watcher, lambda: chaos.is_swapping)
            began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch.run())
                async with load.running():
                    await chaos.run(began + args.minutes * 60)
                    num_done = load.num_done
                    while load.num_done < num_done + NUM_SLOTS:  # noqa: ASYNC110 they still end
                        await asyncio.sleep(0.1)
                watching.cancel()
            with suppress(TimeoutError):  # steps in flight give their blocks back when they end
                async with asyncio.timeout(BLOCKS_BACK_S):
                    await until(watcher, lambda s: s.is_idle and s.num_blocks_used == 0)
            status = await watcher.status()
    wrong = {
        "requests that failed": load.failures,
        "outputs that changed": load.changed,
        "counters": watch.wrong,
        "growth": watch.growth(),
        "blocks that are not back": [str(n) for n in [status.num_blocks_used] if n],
    }
    return _report(args, load, chaos, watch, wrong)


def _report(
    args: argparse.Namespace,
    load: SteadyLoad,
    chaos: Chaos,
    watch: Watch,
    wrong: dict[str, list[str]],
) -> int:
    table = Table("what", "number", "more")
    table.add_row("requests that ended well", str(load.num_done), f"{len(load.arrivals)} deltas")
    for name, number in sorted(chaos.done.items()):
        table.add_row(name, str(number))
    table.add_row("swaps cut short by a fault", str(len(chaos.failed_swaps)))
    for name, texts in wrong.items():
        table.add_row(name, f"[red]{len(texts)}[/]" if texts else "0", "; ".join(texts[:3]))
    console.print(table)
    lives: dict[str, list[Any]] = defaultdict(list)
    for (role, life, name), (first, last) in watch.peaks.items():
        lives[role].append({"life": life, "figure": name, "first": first, "last": last})
    is_good = not any(wrong.values()) and load.num_done > 0
    console.print("[green]soak: OK[/]" if is_good else "[red]soak: FAILED[/]")
    if args.json:
        report = {"machine": describe(), "faults": chaos.done, "done": load.num_done,
                  "wrong": wrong, "lives": lives, "swaps_cut": chaos.failed_swaps}  # fmt: skip
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
        Path(args.json).write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the figures there")
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
