"""Three services in one event loop, ports 0, tiny models: what integration tests run against."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from minedraft.client import NO_RETRIES, Client
from minedraft.link.local import LocalNetwork
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter import app as drafter_app
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier import app as verifier_app
from minedraft.services.verifier.config import VerifierConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from minedraft.admin import Status

LOOPBACK = "127.0.0.1:0"
_POLL_S = 0.002
"""Looking without a pause would take the time of what is waited for: all are one process."""
NETWORK = LocalNetwork()
"""Where `local` links meet: both workers of a test are in this process."""
run_drafter = partial(drafter_app.run, network=NETWORK)
run_verifier = partial(verifier_app.run, network=NETWORK)


class Service:
    """One service as a task that can be stopped and whose address is known."""

    def __init__(self, run, config) -> None:
        self._run, self.config = run, config
        self.address = ""
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        self._task = asyncio.create_task(
            self._run(self.config, ready=self._on_ready, stop=self._stop)
        )
        await asyncio.wait((self._task, self._ready), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            await self._task
        self.address = self._ready.result()
        return self.address

    def again(self) -> Service:
        """A new process, so to say, at the same address; start it."""
        return Service(self._run, replace(self.config, listen=self.address))

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None and not self._task.cancelled():
            await self._task

    async def kill(self) -> None:
        """End it without a drain: connections break, nobody is told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _on_ready(self, address: str) -> None:
        self._ready.set_result(address)


@dataclass
class Cluster:
    """What a test talks to."""

    client: Client
    coordinator: Service
    verifier: Service
    drafters: list[Service]
    verifier_address: str
    extras: AsyncExitStack

    async def start_drafter(self, model: Path, **options) -> str:
        """Start one more drafter; returns its address."""
        config = DrafterConfig(model=str(model), listen=LOOPBACK, grace_s=0.1, **options)
        service = Service(run_drafter, config)
        self.extras.push_async_callback(service.stop)
        return await service.start()

    @asynccontextmanager
    async def another_coordinator(self, config: CoordinatorConfig) -> AsyncIterator[Client]:
        """A second coordinator takes the workers over from the first, which ends."""
        await self.coordinator.stop()
        service = Service(
            run_coordinator, replace(config, grace_s=0.1, reconnect_s=0.02, trial_s=0.0)
        )
        client = await Client.connect(await service.start())
        try:
            await until_up(client, with_drafter=False)
            yield client
        finally:
            await client.close()
            await service.stop()

    async def wait_for_error(self, client: Client, role: str):
        """Wait until a worker of that role has an error to show."""
        while True:
            for worker in (await client.status()).workers:
                if worker.role == role and "vocabulary" in worker.last_error:
                    return worker
            await asyncio.sleep(0.01)


@asynccontextmanager
async def cluster(
    target: Path,
    draft: Path | None = None,
    *,
    kind: str = "model",
    mode: tuple[int, int, int] = (2, 4, 3),
    link: str = "local",
    acceptance: str = "coupled",
    num_blocks: int = 256,
    num_drafters: int = 1,
    grace_s: float = 0.1,
    coordinator: Callable[[CoordinatorConfig], CoordinatorConfig] = lambda config: config,
    verifier_options: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[Cluster]:
    """Run all three; ready when the link is up (or without a drafter when the verifier is)."""
    verifier = Service(
        run_verifier,
        VerifierConfig(
            model=str(target),
            listen=LOOPBACK,
            num_blocks=num_blocks,
            acceptance=acceptance,
            block_size=8,
            grace_s=0.1,
            **verifier_options,
        ),
    )
    drafter_services: list[Service] = []
    verifier_address = await verifier.start()
    drafters: tuple[str, ...] = ()
    for _ in range(num_drafters if draft is not None else 0):
        drafter = Service(
            run_drafter,
            DrafterConfig(
                model=str(draft),
                kind=kind,
                listen=LOOPBACK,
                num_blocks=num_blocks,
                block_size=8,
                grace_s=0.1,
            ),
        )
        drafters += (await drafter.start(),)
        drafter_services.append(drafter)
    config = CoordinatorConfig(
        listen=LOOPBACK,
        verifier=verifier_address,
        drafters=drafters,
        tokenizer=str(target),
        num_batches=mode[0],
        max_batch_size=mode[1],
        num_draft_tokens=mode[2],
        shape="fixed",
        link=link,
        reconnect_s=0.02,
        debug_requests=True,
        grace_s=grace_s,
        trial_s=0.0,
    )
    service = Service(run_coordinator, coordinator(config))
    address = await service.start()
    client = await Client.connect(address, retry=NO_RETRIES)
    extras = AsyncExitStack()
    running = Cluster(client, service, verifier, drafter_services, verifier_address, extras)
    try:
        await until_up(client, with_drafter=draft is not None)
        yield running
    finally:
        await client.close()
        await running.coordinator.stop()
        await extras.aclose()
        for drafter in running.drafters:
            await drafter.stop()
        await running.verifier.stop()


async def until_status(client: Client, holds: Callable[[Status], bool]) -> Status:
    """Ask for the status until it is as wanted; the test's own timeout bounds it."""
    while not holds(status := await client.status()):  # noqa: ASYNC110 the event is elsewhere
        await asyncio.sleep(_POLL_S)
    return status


async def until_up(client: Client, *, with_drafter: bool) -> None:
    """Wait until every worker has joined and the link is formed."""
    while True:
        status = await client.status()
        by_role = {
            role: [worker for worker in status.workers if worker.role == role]
            for role in ("verifier", "drafter")
        }
        is_linked = all(worker.link_epoch > 0 for worker in by_role["drafter"])
        if by_role["verifier"][0].connected and (is_linked or not with_drafter):
            return
        await asyncio.sleep(0.01)
