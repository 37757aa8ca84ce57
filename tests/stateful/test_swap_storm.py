"""Links, workers and swaps come and go at random; afterwards one drafter drafts, with one link."""

from __future__ import annotations

import asyncio
import random

import pytest

from minedraft.admin import SwapOrder
from minedraft.errors import MineDraftError
from minedraft.plans import LinkLost
from minedraft.services.coordinator.workers.back_off import BackOff
from tests.engine_world import make_sample, read
from tests.membership_world import VERIFIER, settled
from tests.swap_world import swap_world
from tests.worker_doubles import continuation

NUM_EVENTS = 60
MAX_DEATHS = 2
"""Of verifiers; a request that more of them die with is given up."""


class Storm:
    """One event per method."""

    def __init__(self, world, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.swaps: list[asyncio.Task] = []
        self.samples = [world.sample]
        self.num_deaths = 0

    def blow(self) -> None:
        events = (
            *(self.work,) * 4,
            *(self.lose_a_link,) * 2,
            self.a_drafter_dies,
            self.the_verifier_dies,
            self.swap_the_model,
            self.swap_the_drafter,
            self.cancel_a_swap,
            self.submit,
        )
        self.rng.choice(events)()

    def work(self) -> None:
        if self.world.membership.verifier.connection is not None:
            for _ in range(self.rng.randrange(1, 4)):
                if self.rng.random() < 0.7:
                    self.world.draft()
                self.world.verify(drafts_came=self.rng.random() < 0.7)

    def lose_a_link(self) -> None:
        sources = [s for m in self.world.membership.drafters for s in m.sources if s.is_linked]
        if sources and self.world.membership.verifier.connection is not None:
            lost = self.rng.choice(sources).source_id
            self.world.workers[VERIFIER].say(LinkLost(lost, "cable"))
            for worker in self.world.workers.values():
                worker.models.pop(lost, None)

    def a_drafter_dies(self) -> None:
        address = self.rng.choice(self.world.membership.drafters).address
        if self.world.workers[address].is_open:
            self.world.workers[address].end()
            self.world.drafter(address)

    def the_verifier_dies(self) -> None:
        if self.num_deaths < MAX_DEATHS:
            self.num_deaths += 1
            self.world.workers[VERIFIER].end()
            self.world.verifier()
            for worker in self.world.workers.values():
                worker.models.clear()

    def swap_the_model(self) -> None:
        self._swap(SwapOrder(model=f"model {len(self.swaps)}"))

    def swap_the_drafter(self) -> None:
        address = f"green:{len(self.swaps) + 1}"
        self.world.drafter(address)
        self._swap(SwapOrder(address=address))

    def _swap(self, order: SwapOrder) -> None:
        swap = self.world.swapper.swap(order, self.rng.choice((None, 0.02)))
        self.swaps.append(asyncio.create_task(swap))

    def cancel_a_swap(self) -> None:
        if self.swaps:
            self.swaps[-1].cancel()

    def submit(self) -> None:
        self.samples.append(make_sample(f"s{len(self.samples)}", max_tokens=40))
        self.world.engine.submit([self.samples[-1]])

    async def calm(self) -> None:
        """Work until all swaps have ended and all requests are answered."""
        clean_up = self.world.swapper._clean_up
        while not all(
            (
                all(swap.done() for swap in self.swaps),
                clean_up is None or clean_up.done(),
                self.world.core.is_idle,
            )
        ):
            if self.world.membership.verifier.connection is not None:
                self.world.draft()
                self.world.verify()
            await settled()
            clean_up = self.world.swapper._clean_up
        for swap in self.swaps:
            if not swap.cancelled() and swap.exception() is not None:
                assert isinstance(swap.exception(), MineDraftError)


@pytest.mark.parametrize("seed", range(25))
async def test_after_any_storm_one_drafter_drafts_and_nothing_is_left_behind(monkeypatch, seed):
    monkeypatch.setattr(BackOff, "after", lambda _self, _err, _worked_s: 0.0)
    async with swap_world(monkeypatch) as world:
        storm = Storm(world, seed)
        for _ in range(NUM_EVENTS):
            storm.blow()
            await (settled() if storm.rng.random() < 0.7 else asyncio.sleep(0))
        await storm.calm()
        await world.until(lambda: all(m.source for m in world.membership.drafters))
        assert not world.membership.links._lent
        (member,) = world.membership.drafters
        number = member.source.source_id
        assert [source.source_id for source in member.sources] == [number]
        assert [source.source_id for source in world.core.sources] == [number]
        assert {*world.core.costs._sources} == {*world.engine._send_draft} == {number}
        last = make_sample("last", max_tokens=20)
        world.engine.submit([last])
        await storm.calm()
        for sample in (*storm.samples, last):
            tokens, ends = await read(sample.stream)
            assert tokens[0] == continuation((1, 2, 3), len(tokens[0]))
            assert len(ends) == 1
        assert ends[0].speculation.num_accepted_tokens > 0, "the last one was drafted for"
