"""Role x fault x phase, greedy and seeded requests together: nothing is lost, repeated or changed.

Each cell: the requests are brought into the phase and held there, the fault happens, everything
goes on. Outputs are those of the undisturbed run, every request has one terminal event, blocks are
back, drafts flow again, no task and no link is left over.
"""

from __future__ import annotations

import asyncio

import pytest

from minedraft.services.coordinator.core import costs
from minedraft.transport import channel
from minedraft.transport.keepalive import Keepalive
from tests.faults.faults import IMPATIENT, TABLE, silence
from tests.faults.hooks import Hooks
from tests.faults.phases import PHASES
from tests.faults.world import REQUESTS, a_world, is_up
from tests.integration.cluster import NETWORK

CELLS = [
    pytest.param(role, fault, phase, link, id=f"{role}-{fault.__name__}-{phase}-{link}")
    for fault, roles in TABLE.items()
    for role, links in roles.items()
    if not isinstance(links, str)
    for link in links
    for phase in PHASES
]


@pytest.mark.parametrize(("role", "fault", "phase", "link"), CELLS)
async def test_a_fault_changes_nothing(
    role, fault, phase, link, target_dir, undisturbed, monkeypatch
):
    hooks, stage = Hooks(monkeypatch), PHASES[phase]
    if fault in IMPATIENT:
        monkeypatch.setattr(costs, "DRAFT_TIMEOUT_CEILING_NS", 200_000_000)
        monkeypatch.setattr(costs, "DRAFT_TIMEOUT_FLOOR_NS", 200_000_000)
    if fault is silence:
        monkeypatch.setattr(channel, "KEEPALIVE", Keepalive(silence_ms=600, answer_ms=800))
    # Sooner than pytest's: it says where the cell stands.
    async with asyncio.timeout(15), a_world(target_dir, link, stage.mode, hooks) as world:
        stage.prepare(hooks)
        running = asyncio.create_task(world.run_load())
        await world.until(stage.is_there)
        if stage.is_free:
            hooks.open_gates()
        await fault(world, role)
        hooks.open_gates()
        for healing in world.healing:
            await healing
        results = await running
        assert [r.token_ids for r in results] == undisturbed
        await world.until(is_up)
        status = await world.until(lambda s: s.is_idle and s.num_blocks_used == 0)
        counters = status.counters
        assert sum(counters.num_finished.values()) == counters.num_requests
        assert counters.num_accepted_tokens <= counters.num_draft_tokens
        num_drafts = 0
        while not num_drafts:  # they flow again, if not at once: a drafter that was late is suspect
            (again,) = await world.run_load(8, num_requests=1)
            assert again.token_ids == undisturbed[0][:8]
            num_drafts = again.speculation.num_drafts
        if link == "grpc" and fault.__name__ in {"garbage", "half"}:
            assert world.proxies[role].num_spoiled == 1
    assert len(REQUESTS) == len(results)
    assert NETWORK.names == ()
    await nobody_left()


async def nobody_left():
    """Tasks that were told to end do so; some only as gRPC's own thread comes around to them."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=10)
    assert not left
