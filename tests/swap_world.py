"""A membership world with one drafter that a test swaps; see `membership_world`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from minedraft.admin import SwapOrder
from minedraft.services.coordinator.workers import swap as swap_module
from minedraft.services.coordinator.workers.swap import Swapper
from tests.engine_world import make_sample, read
from tests.membership_world import MembershipWorld, settled
from tests.worker_doubles import continuation

IN_PLACE = SwapOrder(model="new")
GREEN = "green:1"


@asynccontextmanager
async def swap_world(monkeypatch):
    """A verifier, a linked drafter and a request that decodes."""
    monkeypatch.setattr(swap_module, "_POLL_S", 0.0)
    async with MembershipWorld(monkeypatch, drafters=("drafter:1",)) as world:
        world.target = world.verifier()
        world.old = world.drafter()
        await world.until(lambda: world.core.sources.newest == 1)
        world.swapper = Swapper(world.membership)
        world.sample = make_sample("r", max_tokens=60)
        world.engine.submit([world.sample])
        for _ in range(3):
            world.draft()
            world.verify()
        yield world


async def finish(world) -> None:
    world.work()
    tokens, ends = await read(world.sample.stream)
    assert tokens[0] == continuation((1, 2, 3), 60)
    assert ends[0].speculation.num_accepted_tokens > 0


def begin(world, order=IN_PLACE) -> asyncio.Task:
    return asyncio.create_task(world.swapper.swap(order))


async def warmed(world, epoch=2) -> None:
    """The new drafter is linked and has caught up; it takes over."""
    await world.until(lambda: epoch in world.warming)
    world.draft()
    await world.until(lambda: world.core.sources.newest == epoch)


async def old_one_stays(world) -> None:
    await settled()
    assert world.core.sources.newest == 1
    assert world.warming == ()
    assert [member.address for member in world.membership.drafters] == ["drafter:1"]
    member = world.membership.drafters[0]
    assert [source.source_id for source in member.sources] == [1]
    assert world.swapper.status.num_failed == 1
    await finish(world)
