"""Faults that only processes have: kill -9, SIGSTOP, a restart at the same port, over gloo.

One fleet of real processes for all cells, each behind a proxy. Requests are sent, the phase is
waited for, the fault happens. Outputs are those of plain decoding; afterwards everything is up.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.fleet import Fleet, Service, is_up, total, until
from minedraft.client import NO_RETRIES, Client, RetryPolicy
from tests.faults.tcp_proxy import Proxy
from tests.tiny_models import make_tiny_llama

pytestmark = [
    pytest.mark.multiproc,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
]

GREEDY = {"temperature": 0}
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}
PROMPTS = [list(range(5, 9 + 11 * i)) for i in range(10)]
NUM_TOKENS = 100
FREEZE_S = 5.0
LIMIT_S = 50
PATIENT = RetryPolicy(first_delay_s=0.02, max_delay_s=0.2)
MODE = ("--num-batches=2", "--max-batch-size=4", "--num-draft-tokens=3", "--link=gloo")


@dataclass
class World:
    fleet: Fleet
    proxies: dict[str, Proxy]
    client: Client
    watcher: Client
    expected: dict[str, list[tuple[int, ...]]]


@asynccontextmanager
async def a_fleet(directory: Path):
    """Drafter and target are the same model: every draft that comes in time is accepted."""
    target = make_tiny_llama(directory / "target")
    async with AsyncExitStack() as stack:
        proxies = {}
        for role in ("verifier", "drafter", "coordinator"):
            proxies[role] = Proxy()
            await proxies[role].start()
            stack.push_async_callback(proxies[role].close)

        def front(role, address):
            proxies[role].upstream = address
            return proxies[role].address

        fleet = Fleet(
            target,
            target,
            directory,
            workers=("--num-blocks=128", "--block-size=8", "--grace-s=0.2"),
            coordinator=(*MODE, "--reconnect-s=0.05", "--grace-s=20", "--prefill-budget-tokens=64"),
            front=front,
        )
        await stack.enter_async_context(fleet)
        client = await Client.connect(fleet.address, retry=PATIENT)
        stack.push_async_callback(client.close)
        straight = fleet.services["coordinator"].address
        watcher = await Client.connect(straight, retry=NO_RETRIES)
        stack.push_async_callback(watcher.close)
        world = World(fleet, proxies, client, watcher, {})
        await until(watcher, is_up)
        await watcher.set_mode(num_batches=2, max_batch_size=4, num_draft_tokens=0)
        for name, options in (("greedy", GREEDY), ("seeded", SEEDED)):
            world.expected[name] = [r.token_ids for r in await load(client, options)]
        await watcher.set_mode(num_batches=2, max_batch_size=4, num_draft_tokens=3)
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory, warm_python):
    with warm_python.instead_of_cold():
        async with a_fleet(tmp_path_factory.mktemp("fleet")) as world:
            yield world


async def load(client, options):
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, **options)
            )
            for prompt in PROMPTS
        ]
    return [task.result() for task in tasks]


# -- faults ---------------------------------------------------------------------------------------


async def kill(world, role):
    await world.fleet.services[role].kill()
    await world.fleet.services[role].start()


async def terminate(world, role):
    """SIGTERM, and another instance at the same address."""
    await world.fleet.services[role].stop()
    await world.fleet.services[role].start()


async def freeze(world, role):
    service = world.fleet.services[role]
    service.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(FREEZE_S if role != "coordinator" else 1.0)
    finally:
        service.signal(signal.SIGCONT)


async def reset(world, role):
    world.proxies[role].cut()


async def garbage(world, role):
    world.proxies[role].garble()


async def half(world, role):
    world.proxies[role].halve()


async def slow(world, role):
    world.proxies[role].is_slow = True


def phase(name):
    return lambda status: total(status, name) > 0


PHASES = {
    "waiting": lambda status: status.num_waiting and status.num_running,
    "streaming": lambda status: total(status, "verifying") and status.num_running == 8,
    **{name: phase(name) for name in ("prefilling", "drafting", "drafted", "verifying")},
}
CELLS = [
    ("drafter", kill, "drafting", "greedy"),
    ("coordinator", kill, "waiting", "seeded"),
    ("verifier", kill, "verifying", "greedy"),
    ("drafter", freeze, "drafting", "seeded"),
    ("coordinator", kill, "prefilling", "greedy"),
    ("coordinator", kill, "drafted", "seeded"),
    ("drafter", terminate, "verifying", "seeded"),
    ("coordinator", kill, "streaming", "greedy"),
    ("verifier", kill, "prefilling", "seeded"),
    ("coordinator", terminate, "streaming", "greedy"),
    ("verifier", freeze, "verifying", "greedy"),
    ("drafter", reset, "streaming", "seeded"),
    ("drafter", garbage, "prefilling", "greedy"),
    ("verifier", reset, "drafting", "seeded"),
    ("verifier", half, "waiting", "greedy"),
    ("verifier", garbage, "streaming", "greedy"),
    ("coordinator", reset, "drafting", "greedy"),
    ("coordinator", half, "streaming", "seeded"),
    ("coordinator", freeze, "streaming", "seeded"),
    ("drafter", slow, "drafting", "greedy"),
]


@pytest.mark.parametrize(
    ("role", "fault", "phase", "sampling"), CELLS, ids=lambda v: getattr(v, "__name__", v)
)
async def test_a_fault_among_processes_changes_nothing(role, fault, phase, sampling, world):
    service = world.fleet.services[role]
    lives, others = service.num_lives, pids(world, but=role)
    options = GREEDY if sampling == "greedy" else SEEDED
    # Before pytest's own, which would leave this coroutine in the loop that the next test uses.
    async with asyncio.timeout(LIMIT_S):
        await until(world.watcher, lambda s: is_up(s) and s.is_idle)
        running = await in_phase(world, options, PHASES[phase])
        await fault(world, role)
        assert [r.token_ids for r in await running] == world.expected[sampling]
        await settled(world, role, others)
    assert service.num_lives == lives + (fault in {kill, terminate})
    async with asyncio.timeout(LIMIT_S):
        again = await world.client.generate(PROMPTS[0], max_tokens=12, ignore_eos=True, **GREEDY)
    assert again.token_ids == world.expected["greedy"][0][:12]
    assert again.speculation.num_drafts


async def in_phase(world, options, is_there):
    """Requests on their way, in that phase. It may pass between two looks: then they go again."""
    while True:
        running = asyncio.create_task(load(world.client, options))
        while not running.done():
            if is_there(await world.watcher.status()):
                return running
        await running


async def settled(world, role, others):
    world.proxies[role].is_slow = False
    status = await until(world.watcher, lambda s: is_up(s) and s.is_idle and s.num_blocks_used == 0)
    assert sum(status.counters.num_finished.values()) == status.counters.num_requests
    assert pids(world, but=role) == others, "only the one that was told to has ended"


def pids(world, *, but):
    return {role: s.pid for role, s in world.fleet.services.items() if role != but}


@pytest.mark.timeout(120)  # four processes with torch, one after the other on a busy machine
async def test_a_dead_rank_takes_the_verifier_down_and_it_comes_back_as_one(
    tmp_path, target_dir, plain_greedy, warm_processes
):
    options = ["--tp-size=2", "--tp-timeout-s=20", "--num-blocks=128", "--block-size=8"]
    verifier = Service("verifier", [f"--model={target_dir}", *options], tmp_path)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(verifier.stop)
        await verifier.start()
        options = [f"--verifier={verifier.address}", "--drafters=", f"--tokenizer={target_dir}"]
        coordinator = Service("coordinator", [*options, "--reconnect-s=0.05"], tmp_path)
        stack.push_async_callback(coordinator.stop)
        await coordinator.start()
        client = await stack.enter_async_context(
            await Client.connect(coordinator.address, retry=PATIENT)
        )
        await until(client, is_up)
        prompt = PROMPTS[1]
        running = asyncio.create_task(
            client.generate(prompt, max_tokens=48, ignore_eos=True, **GREEDY)
        )
        await until(client, lambda status: status.counters.num_output_tokens > 2)
        (rank,) = ranks_of(verifier.pid)
        os.kill(rank, signal.SIGKILL)
        await verifier.ended()
        await verifier.stop()
        await verifier.start()
        assert (await running).token_ids == plain_greedy(prompt, 48)


def ranks_of(pid):
    """Children of the verifier that are ranks; multiprocessing has helpers of its own."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = []
    for child in map(int, children):
        words = Path(f"/proc/{child}/cmdline").read_text()
        if "resource_tracker" not in words:
            found.append(child)
    return found
