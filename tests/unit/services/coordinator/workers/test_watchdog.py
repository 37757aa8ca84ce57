from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from minedraft.services.coordinator.workers.watchdog import Watchdog


class World:
    """A clock that moves as the watchdog sleeps, and peers that owe what the test says."""

    def __init__(self, limit_s: float) -> None:
        self.now_s = 0.0
        self.owed = {"verifier": 1}
        self.left: list[tuple[str, float]] = []
        self.pauses_s: dict[int, float] = {}
        """By look: how much later it comes than it should."""
        self.num_looks = 0
        self.until_s = 100.0
        self.watchdog = Watchdog(
            limit_s, lambda: self.owed, self.leave, clock=lambda: self.now_s, sleep=self.sleep
        )

    async def sleep(self, tick_s: float) -> None:
        if self.now_s >= self.until_s or self.left:
            raise asyncio.CancelledError
        self.num_looks += 1
        self.now_s += tick_s + self.pauses_s.get(self.num_looks, 0.0)
        if self.num_looks > 1:
            self.after_look(self.num_looks)

    def after_look(self, num_looks: int) -> None:
        """What happens between two looks."""

    async def leave(self, peer: str, waited_s: float) -> None:
        self.left.append((peer, waited_s))

    async def run(self) -> None:
        with suppress(asyncio.CancelledError):
            await self.watchdog.run()


@pytest.mark.parametrize("limit_s", [0.3, 5.0, 10.0, 120.0])
async def test_who_owes_a_step_for_too_long_is_left_within_a_tenth_more(limit_s):
    world = World(limit_s)
    world.until_s = 1000.0
    await world.run()
    ((peer, waited_s),) = world.left
    assert peer == "verifier"
    assert waited_s == pytest.approx(limit_s, rel=0.05)
    assert limit_s <= world.now_s <= 1.1 * limit_s


async def test_who_gets_on_is_not_left_however_slowly():
    world = World(5.0)
    world.after_look = lambda n: world.owed.update(verifier=1 + n // 9)
    await world.run()
    assert world.left == []


async def test_who_owes_nothing_is_not_left():
    world = World(5.0)
    world.owed = {"verifier": 0}
    await world.run()
    assert world.left == []


async def test_only_the_one_that_hangs_is_left():
    world = World(5.0)
    world.owed = {"verifier": 1, "drafter": 1}
    world.after_look = lambda n: world.owed.update(verifier=n)
    await world.run()
    assert [peer for peer, _ in world.left] == ["drafter"]


async def test_a_pause_of_this_process_counts_for_no_more_than_a_moment():
    """Stopped for an hour, again and again: the answers were there, nobody could read them."""
    world = World(5.0)
    world.pauses_s = {3: 3600.0, 6: 3600.0}
    world.until_s = 7203.0
    world.after_look = lambda n: world.owed.update(verifier=n // 3)  # read after each pause
    await world.run()
    assert world.left == []


async def test_who_hangs_is_left_even_if_this_process_had_paused():
    world = World(5.0)
    world.pauses_s = {3: 3600.0}
    world.until_s = 3700.0
    await world.run()
    assert world.left
    assert world.now_s <= 3600.0 + 1.2 * 5.0


async def test_a_peer_that_came_back_begins_anew():
    world = World(5.0)
    world.until_s = 8.0

    def come_back(num_looks: int) -> None:
        world.owed = {} if num_looks == 14 else {"verifier": 1}

    world.after_look = come_back
    await world.run()
    assert world.left == []
