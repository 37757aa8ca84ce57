"""Two coordinators on the same workers: one serves, the other says why not and stands by."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from minedraft.client import NO_RETRIES, Client
from minedraft.errors import PreconditionError, WorkerUnavailableError
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.workers import membership as membership_module
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.config import VerifierConfig
from tests.faults.tcp_proxy import Proxy
from tests.integration.cluster import (
    LOOPBACK,
    Service,
    run_drafter,
    run_verifier,
    until_status,
    until_up,
)
from tests.integration.conftest import gather

SILENCE_S = 15.0
PROMPT = (5, 9, 17, 33)
OPTIONS = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}


class Two:
    """Both workers, and as many coordinators as the test starts."""

    def __init__(self, stack: AsyncExitStack, verifier: Service, drafter: Service) -> None:
        self._stack = stack
        self.verifier, self.drafter = verifier, drafter
        self.services: list[Service] = []

    @property
    def config(self) -> CoordinatorConfig:
        return CoordinatorConfig(
            listen=LOOPBACK,
            verifier=self.verifier.address,
            drafters=(self.drafter.address,),
            link="local",
            reconnect_s=0.02,
            grace_s=0.1,
            trial_s=0.0,
        )

    async def stop_verifier(self) -> None:
        await self.verifier.stop()

    async def coordinator(self, **changes: object) -> Client:
        service = Service(run_coordinator, replace(self.config, **changes))
        self._stack.push_async_callback(service.stop)
        self.services.append(service)
        client = await Client.connect(await service.start(), retry=NO_RETRIES)
        self._stack.push_async_callback(client.close)
        return client


@asynccontextmanager
async def workers(target_dir, draft_dir):
    verifier = Service(
        run_verifier,
        VerifierConfig(str(target_dir), listen=LOOPBACK, num_blocks=64, block_size=8, grace_s=0.1),
    )
    drafter = Service(
        run_drafter,
        DrafterConfig(str(draft_dir), listen=LOOPBACK, num_blocks=64, block_size=8, grace_s=0.1),
    )
    async with AsyncExitStack() as stack:
        for service in (verifier, drafter):
            await service.start()
        two = Two(stack, verifier, drafter)
        stack.push_async_callback(drafter.stop)
        stack.push_async_callback(two.stop_verifier)
        yield two


@pytest.fixture(autouse=True)
def _asked_often(monkeypatch):
    monkeypatch.setattr(membership_module, "_HELD_S", 0.05)


async def tokens(client: Client) -> tuple[int, ...]:
    return (await client.generate(PROMPT, **OPTIONS)).token_ids


async def refusal(client: Client) -> str:
    with pytest.raises(WorkerUnavailableError) as refused:
        await tokens(client)
    return str(refused.value)


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_the_first_serves_the_second_says_why_not_and_takes_over(
    target_dir, draft_dir, plain_greedy, end
):
    expected = plain_greedy(PROMPT, 24)
    async with workers(target_dir, draft_dir) as two:
        first = await two.coordinator()
        await until_up(first, with_drafter=True)
        holder = (await first.status()).identity.instance_id
        with capture_logs() as logs:
            second = await two.coordinator()
            status = await until_status(second, lambda s: holder in s.workers[0].last_error)
            assert (
                f"belongs to coordinator {holder} (127.0.0.1:0 on " in status.workers[0].last_error
            )
            assert "does not hold the verifier" in status.workers[1].last_error
            assert not any(worker.connected for worker in status.workers)
            results = await gather(
                *(tokens(first) for _ in range(4)), *(refusal(second) for _ in range(4))
            )
            assert results[:4] == [expected] * 4
            assert all(holder in text for text in results[4:])
            with pytest.raises(PreconditionError, match=holder):
                await second.swap_drafter(model=str(draft_dir))
            before = await first.status()
        assert [line["role"] for line in logs if line["event"] == "worker.lost"] == ["verifier"]
        assert [line["event"] for line in logs if line["event"].startswith("session.")] == [
            "session.refused"
        ]
        assert [(w.connected, w.last_error) for w in before.workers] == [(True, ""), (True, "")]
        await getattr(two.services[0], end)()
        await until_up(second, with_drafter=True)
        assert await tokens(second) == expected
        assert [w.last_error for w in (await second.status()).workers] == ["", ""]


@pytest.mark.slow
@pytest.mark.timeout(60)  # the verifier loads its model four times
async def test_of_two_that_wait_for_the_workers_one_gets_both(target_dir, draft_dir, plain_greedy):
    """Also after the verifier has been away: never one with the verifier, one with the drafter."""
    async with workers(target_dir, draft_dir) as two:
        verifier = two.verifier
        await verifier.kill()
        clients = [await two.coordinator() for _ in range(2)]
        for _ in range(3):
            two.verifier = two.verifier.again()
            await two.verifier.start()
            winner = await first_to_have_both(clients)
            loser = next(client for client in clients if client is not winner)
            status = await until_status(loser, lambda s: "belongs to" in s.workers[0].last_error)
            assert not any(worker.connected for worker in status.workers)
            assert await tokens(winner) == plain_greedy(PROMPT, 24)
            await two.verifier.kill()
            await until_status(winner, lambda s: not s.workers[0].connected)


async def first_to_have_both(clients: list[Client]) -> Client:
    waiting = {asyncio.create_task(until_up(c, with_drafter=True)): c for c in clients}
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.wait(waiting)
    (winner,) = done
    return waiting[winner]


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_a_holder_behind_a_network_that_swallows_everything_is_given_up_after_15_s(
    target_dir, draft_dir, plain_greedy
):
    async with workers(target_dir, draft_dir) as two, AsyncExitStack() as stack:
        proxies = []
        for service in (two.verifier, two.drafter):
            proxy = Proxy()
            await proxy.start()
            stack.push_async_callback(proxy.close)
            proxy.upstream = service.address
            proxies.append(proxy)
        verifier, drafter = (proxy.address for proxy in proxies)
        first = await two.coordinator(verifier=verifier, drafters=(drafter,))
        await until_up(first, with_drafter=True)
        second = await two.coordinator()
        await until_status(second, lambda s: "belongs to" in s.workers[0].last_error)
        began_s = time.monotonic()
        for proxy in proxies:
            proxy.swallows = ("to_service", "to_client")
        await until_up(second, with_drafter=True)
        assert time.monotonic() - began_s < SILENCE_S + 5.0
        assert await tokens(second) == plain_greedy(PROMPT, 24)


async def test_a_coordinator_that_lost_its_connection_is_let_in_again_at_once(
    target_dir, draft_dir
):
    async with workers(target_dir, draft_dir) as two:
        client = await two.coordinator()
        await until_up(client, with_drafter=True)
        expected = await tokens(client)
        await two.services[0].kill()
        again = replace(two.config, listen=two.services[0].address)
        service = Service(run_coordinator, again)
        two._stack.push_async_callback(service.stop)
        await service.start()
        await until_up(client, with_drafter=True)
        assert await tokens(client) == expected
