"""Three services in one loop, each behind a proxy if the link is gRPC, and requests to disturb."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from minedraft.client import NO_RETRIES, Client, RetryPolicy
from minedraft.errors import WorkerUnavailableError
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.config import VerifierConfig
from tests.faults.hooks import Hooks
from tests.faults.tcp_proxy import Proxy
from tests.integration.cluster import LOOPBACK, NETWORK, Service, run_drafter, run_verifier

PATIENT = RetryPolicy(first_delay_s=0.02, max_delay_s=0.1)
GREEDY = {"temperature": 0}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}
REQUESTS = ((list(range(5, 9)), GREEDY), (list(range(5, 19)), SEEDED),
            (list(range(7, 32)), GREEDY), ([40], SEEDED))  # fmt: skip
NUM_TOKENS = 12
_POLL_S = 0.004
"""The gates hold what is waited for; looking without a pause would be most of the CPU time."""


@dataclass
class World:
    """What a fault is applied to."""

    link: str
    hooks: Hooks
    proxies: dict[str, Proxy] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)
    client: Client | None = None
    """Patient; behind the coordinator's proxy if there is one."""
    watcher: Client | None = None
    """Straight to the coordinator, without patience."""
    healing: list = field(default_factory=list)
    """What to await once everything may go on."""

    async def status(self):
        """The status; waits for a coordinator that is away."""
        while True:
            try:
                return await self.watcher.status()
            except WorkerUnavailableError:
                await asyncio.sleep(_POLL_S)

    async def until(self, holds):
        """Ask until it is as wanted; the test's own timeout bounds it."""
        while not holds(status := await self.status()):  # noqa: ASYNC110 the event is elsewhere
            await asyncio.sleep(_POLL_S)
        return status

    async def restart(self, role: str) -> None:
        self.services[role] = self.services[role].again()
        await self.services[role].start()

    @property
    def local_link(self):
        return NETWORK.link(NETWORK.names[-1])

    async def run_load(self, num_tokens: int = NUM_TOKENS, num_requests: int = len(REQUESTS)):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._generate(prompt, num_tokens, options))
                for prompt, options in REQUESTS[:num_requests]
            ]
        return [task.result() for task in tasks]

    async def _generate(self, prompt, num_tokens, options):
        stream = self.client.stream(prompt, max_tokens=num_tokens, ignore_eos=True, **options)
        tokens = [token async for delta in stream for token in delta.token_ids]
        # The assembly refuses a second terminal event, and a stream that ends without one.
        assert stream.completion.token_ids == tuple(tokens)
        return stream.completion


def is_up(status) -> bool:
    """Whether everybody is there and linked."""
    return all(
        worker.connected and (worker.role == "verifier" or worker.link_epoch)
        for worker in status.workers
    )


def total(status, phase: str) -> int:
    """Requests in a phase, all batches together."""
    return sum(batch.num_by_phase.get(phase, 0) for batch in status.batches)


def worker_of(status, role: str):
    return next(worker for worker in status.workers if worker.role == role)


@asynccontextmanager
async def a_world(target, link: str, mode: tuple[int, int, int], hooks: Hooks):
    """Everything up. The drafter is the target itself: every draft that is in time is accepted."""
    world = World(link, hooks)
    common = {"model": str(target), "listen": LOOPBACK, "num_blocks": 64, "block_size": 8}
    async with AsyncExitStack() as stack:
        if link == "grpc":
            for role in ("verifier", "drafter", "coordinator"):
                world.proxies[role] = proxy = Proxy()
                await proxy.start()
                stack.push_async_callback(proxy.close)

        async def launch(role, run, config):
            world.services[role] = service = Service(run, config)

            async def stop():
                await world.services[role].stop()  # the last of its lives

            stack.push_async_callback(stop)
            address = await service.start()
            if role not in world.proxies:
                return address
            world.proxies[role].upstream = address
            return world.proxies[role].address

        verifier = await launch("verifier", run_verifier, VerifierConfig(**common, grace_s=0.1))
        drafter = await launch("drafter", run_drafter, DrafterConfig(**common, grace_s=0.1))
        config = CoordinatorConfig(
            listen=LOOPBACK,
            verifier=verifier,
            drafters=(drafter,),
            tokenizer=str(target),
            num_batches=mode[0],
            max_batch_size=mode[1],
            num_draft_tokens=mode[2],
            shape="fixed",
            link=link,
            reconnect_s=0.02,
            grace_s=10.0,
            trial_s=0.0,
            prefill_stall=1000.0,  # phases count plans with drafts: a prompt takes one plan
        )
        address = await launch("coordinator", run_coordinator, config)
        world.watcher = await Client.connect(
            world.services["coordinator"].address, retry=NO_RETRIES
        )
        stack.push_async_callback(world.watcher.close)
        world.client = await Client.connect(address, retry=PATIENT)
        stack.push_async_callback(world.client.close)
        stack.callback(hooks.open_gates)
        await world.until(is_up)
        yield world
