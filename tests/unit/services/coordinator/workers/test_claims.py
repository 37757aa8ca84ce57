from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from minedraft.services.coordinator.workers import claims as claims_module
from tests.membership_world import MembershipWorld, settled


@pytest.fixture
async def world(monkeypatch):
    async with MembershipWorld(monkeypatch) as world:
        yield world


async def test_a_process_under_two_addresses_is_one_drafter(world, monkeypatch):
    """A session ends the one before it: each member would take it from the other for ever."""
    monkeypatch.setattr(claims_module, "_SAME_PROCESS_S", 0.0)
    world.verifier()
    first = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    alias = world.alias(first, "drafter-b:1")
    await world.until(lambda: world.num_dials["drafter-b:1"] > 9)
    second = world.membership.drafters[1].status()
    assert not alias.is_open
    assert not second.connected
    assert second.last_error == (
        "drafter drafter-b:1 is a member already, as drafter:1: "
        f"both are instance {first.info.identity.instance_id}"
    )
    assert world.sources == (1,)
    first.end()  # one of the two ways there
    await world.until(lambda: world.core.sources.newest == 2)
    assert alias.is_open


async def test_a_second_address_of_a_process_is_dialled_again_after_a_long_pause(world):
    world.verifier()
    first = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    world.alias(first, "drafter-b:1")
    await world.until(lambda: "already" in world.membership.drafters[1].last_error)
    num_dials = world.num_dials["drafter-b:1"]
    await settled()
    assert world.num_dials["drafter-b:1"] == num_dials


async def test_one_that_copies_the_id_of_another_keeps_nobody_out(world):
    """Its session is its own: the other one refuses what it would do in ours."""
    world.verifier()
    copy = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    real = world.drafter("drafter-b:1")
    real.info = replace(real.info, identity=copy.info.identity)
    with capture_logs() as logs:
        await world.until(lambda: world.core.sources.newest == 2)
    assert (copy.is_open, real.is_open) == (True, True)
    (said,) = [entry for entry in logs if entry["event"] == "worker.same_id"]
    assert (said["address"], said["other"]) == ("drafter-b:1", "drafter:1")


async def test_a_second_address_is_taken_as_soon_as_the_first_ones_session_is_over(world):
    world.verifier()
    first = world.drafter()
    await world.until(lambda: world.core.sources.newest == 1)
    alias = world.alias(first, "drafter-b:1")
    await world.until(lambda: "already" in world.membership.drafters[1].last_error)
    assert first.dropped == alias.dropped[:-1] == [], "asked once, for a link that nobody has"
    first.end()
    await world.until(lambda: world.core.sources.newest == 2)
    assert alias.is_open
