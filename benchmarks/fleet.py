"""Coordinator, drafters and verifier as processes that are killed, stopped and started again.

For benchmarks and tests of faults. A service keeps its address across its lives, as a Deployment
would; it knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from minedraft.cli.child import Child, ChildError
from minedraft.errors import WorkerUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from minedraft.admin import Status
    from minedraft.client import Client

_LOOPBACK = "127.0.0.1:0"
_POLL_S = 0.01
_GRACE_S = 8.0


@dataclass
class Service:
    """One role's process, life after life."""

    role: str
    arguments: list[str]
    log_dir: Path
    core: int | None = None
    """Core of the whole process; None: any."""
    log: Path | None = None
    """Where every life writes; None: a file per life."""
    address: str = ""
    num_lives: int = 0
    ready_at: float = 0.0
    """Monotonic seconds; 0: this life does not serve yet."""
    load_s: float = 0.0
    """From the start of this life until it served."""
    _child: Child | None = None

    @property
    def pid(self) -> int:
        """Of this life."""
        if self._child is None:
            raise RuntimeError(f"{self.role}: not started")
        return self._child.pid

    async def start(self) -> None:
        """Start the first or another life; returns when it serves."""
        began = time.monotonic()
        self.num_lives, self.ready_at = self.num_lives + 1, 0.0
        name = f"{self.role}-{self.num_lives}"
        self._child = await Child.start(
            name,
            [self.role, *self.arguments, f"--listen={self.address or _LOOPBACK}", "--log-json"],
            log=self.log or self.log_dir / f"{name}.{id(self):x}.log",
            env={"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        if self.core is not None:
            os.sched_setaffinity(self.pid, {self.core})
        self.address = await self._child.ready()
        self.ready_at = time.monotonic()
        self.load_s = self.ready_at - began

    def signal(self, signum: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, signum)

    async def ended(self) -> None:
        """Wait until it has ended by itself."""
        if self._child is not None:
            with suppress(ChildError):
                await self._child.died()

    async def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        await self.stop()

    async def stop(self) -> None:
        """SIGTERM, and wait until it is gone; SIGKILL if it takes too long."""
        if self._child is not None:
            await self._child.stop(grace_s=_GRACE_S)
            self._child = None

    def rss_bytes(self) -> int:
        """Resident memory."""
        fields = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def figures(self) -> dict[str, int]:
        """What must not grow: resident bytes, open files and sockets, threads."""
        process = Path(f"/proc/{self.pid}")
        return {
            "rss": self.rss_bytes(),
            "fds": len(list((process / "fd").iterdir())),
            "threads": len(list((process / "task").iterdir())),
        }


@dataclass
class Fleet:
    """Three services, the coordinator last; `async with` starts and stops them.

    Args:
        target: Directory of the target.
        draft: Directory of the draft model.
        log_dir: Where the logs go.
        workers: Options of both workers; `verifier`, `drafter`, `coordinator`: of the one.
        also_drafters: Addresses of drafters that the fleet does not start.
        is_pinned: Verifier on the first core, drafter on the last.
        logs: Where a role writes instead of a file per life.
        front: Given role and address, says under which address others reach a service: the place
            for a proxy.
    """

    target: Path
    draft: Path
    log_dir: Path
    workers: tuple[str, ...] = ()
    verifier: tuple[str, ...] = ()
    drafter: tuple[str, ...] = ()
    coordinator: tuple[str, ...] = ()
    also_drafters: tuple[str, ...] = ()
    is_pinned: bool = False
    logs: dict[str, Path] = field(default_factory=dict)
    front: Callable[[str, str], str] = lambda _role, address: address
    services: dict[str, Service] = field(default_factory=dict)

    async def __aenter__(self) -> Self:
        cores = sorted(os.sched_getaffinity(0))
        first, last = (cores[0], cores[-1]) if self.is_pinned else (None, None)
        self._add("verifier", [f"--model={self.target}", *self.workers, *self.verifier], first)
        self._add("drafter", [f"--model={self.draft}", *self.workers, *self.drafter], last)
        try:
            async with asyncio.TaskGroup() as group:
                for service in list(self.services.values()):
                    group.create_task(service.start())
            at = {role: self.front(role, s.address) for role, s in self.services.items()}
            self._add(
                "coordinator",
                [
                    f"--verifier={at['verifier']}",
                    f"--drafters={','.join((at['drafter'], *self.also_drafters))}",
                    f"--tokenizer={self.target}",
                    # What measured costs decide would differ from run to run.
                    "--shape=fixed",
                    "--trial-s=0",
                    *self.coordinator,
                ],
                None,
            )
            await self.services["coordinator"].start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stop()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self.front("coordinator", self.services["coordinator"].address)

    def another_drafter(self, draft: Path, *, core: int | None = None) -> Service:
        """One more drafter, not started; the fleet does not stop it."""
        arguments = [f"--model={draft}", *self.workers, *self.drafter]
        return Service("drafter", arguments, self.log_dir, core)

    def _add(self, role: str, arguments: list[str], core: int | None) -> None:
        self.services[role] = Service(role, arguments, self.log_dir, core, self.logs.get(role))

    async def _stop(self) -> None:
        for role in ("coordinator", "drafter", "verifier"):
            if role in self.services:
                await self.services[role].stop()


async def until(client: Client, holds: Callable[[Status], bool]) -> Status:
    """Ask for the status until it is as wanted; waits for a coordinator that is away."""
    while True:
        try:
            status = await client.status()
        except WorkerUnavailableError:
            pass
        else:
            if holds(status):
                return status
        await asyncio.sleep(_POLL_S)


def is_up(status: Status) -> bool:
    """Whether everybody is there and linked."""
    return all(
        worker.connected and (worker.role == "verifier" or worker.link_epoch)
        for worker in status.workers
    )


def total(status: Status, phase: str) -> int:
    """Requests in a phase, all batches together."""
    return sum(batch.num_by_phase.get(phase, 0) for batch in status.batches)
