"""One watched stream in a bad neighbourhood: its text, its pace, and what is left afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path

import pytest

from minedraft.client import NO_RETRIES, Client
from minedraft.transport.channel import open_channel
from tests.hostile_mix import NUM_TOKENS, PROMPTS, HostileMix
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "12"))
"""Of random requests."""
NUM_CLIENTS = 6
WATCHED_PROMPT = list(range(5, 20))
WATCHED_TOKENS = 200
MAX_GAP_S = 8.0
"""Longest between two events of the watched stream. The machine is shared, and the neighbours share
this event loop: this finds what stands still, not what is slow."""


POOL_THREADS = 4
"""Of the services' own pools, which make theirs as they need them and keep them."""


class Watcher:
    """Streams the same request over and over, each time under an id that the others try to take."""

    def __init__(self, client: Client, mix: HostileMix, expected: tuple[int, ...]) -> None:
        self._client, self._mix, self._expected = client, mix, expected
        self.texts: set[str] = set()
        self.num_streams = 0
        self.longest_gap_s = 0.0

    async def run(self, until: float) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < until:
            request_id = f"watched-{self.num_streams}"
            last = clock()
            text = []
            stream = self._client.stream(
                WATCHED_PROMPT,
                temperature=0,
                max_tokens=WATCHED_TOKENS,
                ignore_eos=True,
                request_id=request_id,
            )
            async for delta in stream:
                self._mix.watched_id = request_id  # from now on: an id is whoever's comes first
                self.longest_gap_s = max(self.longest_gap_s, clock() - last)
                last = clock()
                text.append(delta.text)
            assert stream.completion.token_ids == self._expected
            assert "".join(text) == stream.completion.text
            self.texts.add(stream.completion.text)
            self.num_streams += 1


def held() -> dict[str, int]:
    """What this process holds."""
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }


async def fill_executor() -> None:
    """Let the loop's executor have all threads that it may: they never end."""
    loop, num = asyncio.get_running_loop(), min(32, (os.cpu_count() or 1) + 4)
    barrier = threading.Barrier(num)
    await asyncio.gather(*(loop.run_in_executor(None, barrier.wait) for _ in range(num)))


async def until_held(most: dict[str, int]) -> None:
    """Wait until no more is held; the test's own timeout bounds it."""
    while any(now > most[name] for name, now in held().items()):  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(60 + SECONDS)
async def test_a_stream_in_a_bad_neighbourhood_is_equal_and_nothing_is_left(
    target_dir, plain_greedy
):
    seed = 7 if os.environ.get("CI") else random.randrange(2**32)
    print(f"{seed=}")  # noqa: T201 shown if it fails
    greedy = {prompt: plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS}
    async with cluster(target_dir, target_dir, kind="oracle", mode=(2, 4, 3), link="grpc") as c:
        address = c.client.address
        clock = asyncio.get_running_loop().time
        port = int(address.rpartition(":")[2])

        async def neighbourhood(seconds: float) -> tuple[Watcher, HostileMix]:
            async with (
                await Client.connect(address, retry=NO_RETRIES) as watched,
                await Client.connect(address, retry=NO_RETRIES) as other,
                open_channel(address, own_connection=True) as channel,
            ):
                mix = HostileMix(other, channel, port, greedy, seed)
                watcher = Watcher(watched, mix, plain_greedy(WATCHED_PROMPT, WATCHED_TOKENS))
                if not seconds:  # each once: what is made once and kept is made now
                    await gather(watcher.run(clock() + 0.1), *(mix.do(deed) for deed in mix.deeds))
                until = clock() + seconds
                await gather(watcher.run(until), *(mix.run(until) for _ in range(NUM_CLIENTS)))
                await mix.end()
            return watcher, mix

        await neighbourhood(0)
        await until_status(c.client, lambda s: s.num_running == 0)
        await fill_executor()
        before = held()
        before["threads"] += POOL_THREADS
        watcher, mix = await neighbourhood(SECONDS)
        assert len(watcher.texts) == 1
        assert watcher.longest_gap_s < MAX_GAP_S
        assert mix.done.keys() == {deed.__name__.strip("_") for deed in mix.deeds}
        await until_status(
            c.client, lambda s: (s.num_running, s.num_waiting, s.num_blocks_used) == (0, 0, 0)
        )
        await until_held(before)
        print(  # noqa: T201 shown with -s
            f"longest gap {watcher.longest_gap_s:.2f} s, {watcher.num_streams} streams, "
            f"{mix.done.total()} deeds"
        )
