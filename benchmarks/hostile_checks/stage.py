"""Where a hostile check runs: three services, twelve streams under way, and what must be so after.

Every trial has processes of its own, so that one check cannot spoil another. Its outputs are
compared with those of the first, undisturbed trial.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleet import Fleet, until
from lines import Line
from steady_load import Asked, SteadyLoad

from minedraft.client import NO_RETRIES, Client, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from minedraft.admin import Status

NUM_STREAMS = 12
NUM_TOKENS = 120
WARM_UP_TOKENS = 8
SETTLE_S = 20.0
"""Longest wait for blocks and descriptors to be back when a trial ends."""
PATIENT = RetryPolicy(patience_s=120.0, first_delay_s=0.05, max_delay_s=0.5)
_RESET_PEAK = "5"


def is_linked(status: Status) -> bool:
    """Whether the verifier and the first drafter are there, and linked."""
    connected = [worker for worker in status.workers if worker.connected]
    return any(w.role == "verifier" for w in connected) and any(w.link_epoch for w in connected)


@dataclass
class Trial:
    """One run of the services."""

    fleet: Fleet
    client: Client
    """Patient: it resumes what breaks."""
    watcher: Client
    """Without patience."""
    load: SteadyLoad
    idle_bytes: dict[str, int]
    """Resident memory per role before the load."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Most resident memory per role until the last time that was forgotten."""

    def peak_bytes(self, role: str) -> int:
        """Most resident memory of a role since it began to serve."""
        status = Path(f"/proc/{self.fleet.services[role].pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def forget_peaks(self) -> None:
        """Begin the peaks of memory anew; they are kept for the trial's own line."""
        for role, service in self.fleet.services.items():
            self.peaks[role] = max(self.peaks.get(role, 0), self.peak_bytes(role))
            _reset_peak(service.pid)

    async def streams_again(self) -> None:
        """Wait until every slot has had a token from now on."""
        await self.load.all_moved(range(NUM_STREAMS), time.time_ns())

    async def answers_again(self) -> None:
        """Wait until as many answers have ended as there are streams."""
        enough = self.load.num_done + len(self.load.failures) + NUM_STREAMS
        while self.load.num_done + len(self.load.failures) < enough:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def drafts_again(self) -> None:
        """Wait until drafts are verified again."""
        before = (await until(self.watcher, is_linked)).counters.num_draft_tokens
        await until(self.watcher, lambda s: s.counters.num_draft_tokens > before)


@dataclass
class Stage:
    """What every check gets.

    Args:
        target: Directory of the target.
        draft: Directory of the draft model.
        work: Where logs and spoiled copies go.
        seconds: Scales how long noise is listened to; a quick run takes less.
    """

    target: Path
    draft: Path
    work: Path
    seconds: float
    reference: list[tuple[int, ...]] = field(default_factory=list)
    memory: dict[str, float] = field(default_factory=dict)
    """Peak of the coordinator's memory over idle, by trial."""
    lines: list[Line] = field(default_factory=list)

    @property
    def requests(self) -> list[Asked]:
        """The load: greedy and seeded ones in turns, prompts of several lengths."""
        greedy, seeded = {"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}
        return [
            Asked(
                tuple(range(1000 + 31 * i, 1000 + 31 * i + 4 + 3 * i)),
                NUM_TOKENS,
                greedy if i % 2 else {**seeded, "seed": i},
            )
            for i in range(NUM_STREAMS)
        ]

    def say(self, text: str, figure: float, target: float, *, detail: str = "") -> None:
        """Add one line; its figure must be at most its target."""
        self.lines.append(Line(text, figure, target, detail=detail))

    @asynccontextmanager
    async def trial(
        self,
        name: str,
        *,
        verifier: tuple[str, ...] = (),
        drafter: tuple[str, ...] = (),
        coordinator: tuple[str, ...] = (),
        also_drafters: tuple[str, ...] = (),
        target: Path | None = None,
        draft: Path | None = None,
        logs: dict[str, Path] | None = None,
        front: Callable[[str, str], str] | None = None,
        has_load: bool = True,
    ) -> AsyncIterator[Trial]:
        """Start the services and the load; on the way out, check what must hold in any case.

        Args:
            name: Of the check: in its lines and its log directory.
            verifier: Options added to its own.
            drafter: Likewise.
            coordinator: Likewise.
            also_drafters: Addresses of more drafters.
            target: Another target, with another draft model.
            draft: Another draft model.
            logs: Where a role writes its log.
            front: Where others reach a service: the place for a relay.
            has_load: Whether the twelve streams run. Without them only memory and blocks are
                checked.
        """
        log_dir = self.work / name.replace(" ", "-")
        log_dir.mkdir(parents=True, exist_ok=True)
        fleet = Fleet(
            target or self.target,
            draft or self.draft,
            log_dir,
            workers=("--num-blocks=2400", "--block-size=8", "--grace-s=1"),
            verifier=verifier,
            drafter=drafter,
            coordinator=(
                "--num-batches=2", f"--max-batch-size={NUM_STREAMS // 2 + 2}", *coordinator,
            ),
            also_drafters=also_drafters,
            logs=logs or {},
            front=front or (lambda _role, address: address),
        )  # fmt: skip
        async with (
            fleet,
            await Client.connect(fleet.address, retry=PATIENT) as client,
            await Client.connect(fleet.address, retry=NO_RETRIES) as watcher,
        ):
            await until(watcher, is_linked)
            load = SteadyLoad(client, self.requests, NUM_STREAMS)
            await self._warm_up(load, client)
            trial = Trial(fleet, client, watcher, load, {})
            for role, service in fleet.services.items():
                trial.idle_bytes[role] = service.rss_bytes()
                _reset_peak(service.pid)
            if has_load:
                async with load.running():
                    await trial.streams_again()
                    yield trial
                    await trial.answers_again()
            else:
                yield trial
            await self._close(name, trial, has_load=has_load)

    async def _warm_up(self, load: SteadyLoad, client: Client) -> None:
        """Run every request: whole in the first trial, which is the reference; then briefly."""
        if not self.reference:
            await load.learn()
            self.reference = load.reference
            return
        load.reference = self.reference
        async with asyncio.TaskGroup() as group:
            for asked in self.requests:
                group.create_task(client.generate(list(asked.token_ids), max_tokens=WARM_UP_TOKENS))

    async def _close(self, name: str, trial: Trial, *, has_load: bool) -> None:
        load = trial.load
        wrong = [*load.failures, *load.changed]
        if has_load or wrong:
            self.say(
                f"{name}: of {NUM_STREAMS} streams, requests failed or changed",
                len(wrong),
                0,
                detail="; ".join(wrong[:3]) or f"{load.num_done} requests ended well",
            )
        try:
            async with asyncio.timeout(SETTLE_S):
                await until(trial.watcher, lambda s: s.is_idle and s.num_blocks_used == 0)
        except TimeoutError:
            status = await trial.watcher.status()
            self.say(f"{name}: blocks that are not back", status.num_blocks_used, 0)
        peak = max(trial.peak_bytes("coordinator"), trial.peaks.get("coordinator", 0))
        self.memory[name] = peak / trial.idle_bytes["coordinator"]


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")


def descriptors_for(number: int) -> None:
    """Raise this process's limit of open files.

    Raises:
        OSError: the machine does not allow as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, max(hard, number)))


def python_path() -> dict[str, str]:
    """An environment in which a child finds the package as this process does."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
