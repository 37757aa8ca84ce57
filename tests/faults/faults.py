"""The rows of the matrix: what each fault does to each role, and which pairs make no sense.

A fault leaves the service able to go on; what it started and must be waited for once the gates are
open again is in `world.healing`.
"""

from __future__ import annotations

import asyncio

import numpy as np

from minedraft.packets.packet import DraftedRow, DraftPacket
from tests.faults.world import World, is_up, worker_of

ROLES = ("drafter", "verifier", "coordinator")


async def kill(world: World, role: str) -> None:
    """It is gone, everybody has noticed, then it comes back."""
    await world.services[role].kill()
    if role != "coordinator":
        await world.until(lambda s: not worker_of(s, role).connected)
    await world.restart(role)


async def restart(world: World, role: str) -> None:
    """Another instance is at its address before anybody has looked."""
    before = {w.role: w.identity.instance_id for w in (await world.status()).workers}
    await world.services[role].kill()
    await world.restart(role)
    if role != "coordinator":

        async def is_another():
            await world.until(
                lambda s: (
                    is_up(s) and worker_of(s, role).identity.instance_id not in {"", before[role]}
                )
            )

        world.healing.append(is_another())


async def stop(world: World, role: str) -> None:
    """SIGTERM: a worker ends its session; a coordinator lets its requests finish first."""
    stopping = asyncio.create_task(world.services[role].stop())
    if role != "coordinator":
        await stopping
        await world.restart(role)
        return
    await world.until(lambda s: s.draining)

    async def come_back():
        await stopping
        await world.restart(role)

    world.healing.append(come_back())


async def hang(world: World, role: str) -> None:
    """It runs no plan for a while. Without a drafter others go on, without a verifier nobody."""
    world.hooks.open_gates()
    world.hooks.gates[role].close()
    before = (await world.status()).counters
    if role == "drafter":
        await world.until(
            lambda s: s.counters.num_output_tokens > before.num_output_tokens + 4 or s.is_idle
        )
    else:
        gate = world.hooks.gates[role]
        await world.until(lambda s: gate.num_held)
        assert (await world.status()).num_running
    world.hooks.open_gates()


async def reset(world: World, role: str) -> None:
    """Its connections are reset; it lives."""
    world.proxies[role].cut()


async def break_link(world: World, role: str) -> None:
    """Only the token link is cut."""
    world.local_link.kill()


async def garbage(world: World, role: str) -> None:
    """Its connection brings bytes that are no frame."""
    world.proxies[role].garble()


async def half(world: World, role: str) -> None:
    """Its connection brings half of something, and breaks."""
    world.proxies[role].halve()


async def garbage_packet(world: World, role: str) -> None:
    """The token link brings noise and a damaged packet."""
    link = world.local_link
    num_words = link.sender.result()._layout.num_words
    noise = np.random.default_rng(3).integers(-(2**31), 2**31, num_words, dtype=np.int32)
    link.corrupt(1)
    link.inject(noise)


async def half_packet(world: World, role: str) -> None:
    """The token link brings the first half of a packet, again and again: it is given up."""
    link = world.local_link
    layout = link.sender.result()._layout
    words = layout.encode(DraftPacket(1, 10**6, 0, ()))
    for _ in range(3):
        link.inject(words[: len(words) // 2])


async def repeat(world: World, role: str) -> None:
    """It says everything twice, and some things again later."""
    if role == "coordinator":
        world.hooks.repeat_plans = True
    else:
        world.hooks.repeats.add(role)
    if role == "drafter":
        world.local_link.duplicate(1000)


async def late_packets(world: World, role: str) -> None:
    """Drafts come after their steps, and forged ones before: other epoch, other length."""
    link = world.local_link
    layout, epoch = link.sender.result()._layout, worker_of(await world.status(), role).link_epoch
    steps = [batch.step_id for batch in (await world.status()).batches]
    link.hold()
    rows = tuple(DraftedRow(row_id, 1, (7, 8, 9)) for row_id in range(1, 9))
    for step in range(max(steps), max(steps) + 3):
        link.inject(layout.encode(DraftPacket(epoch + 7, step, 0, rows)))
        link.inject(layout.encode(DraftPacket(epoch, step, 0, rows)))
    world.hooks.open_gates()
    before = (await world.status()).counters
    await world.until(
        lambda s: s.counters.num_output_tokens > before.num_output_tokens + 4 or s.is_idle
    )
    link.release()


async def silence(world: World, role: str) -> None:
    """The network between it and the others swallows all that is said, and tells nobody."""
    world.proxies[role].silence()


async def slow(world: World, role: str) -> None:
    """What it says trickles in."""
    world.proxies[role].is_slow = True


# By fault and role: on which transports of the token link. A string says why there is no cell.
_ONE_LOOP = "the services of one process share its loop; SIGSTOP is for real processes"
_DRAFTS_ONLY = "only the drafter sends on the token link"
TABLE = {
    kill: dict.fromkeys(ROLES, ("local", "grpc")),
    restart: dict.fromkeys(ROLES, ("local",)),
    stop: dict.fromkeys(ROLES, ("local",)),
    hang: {"drafter": ("local",), "verifier": ("local",), "coordinator": _ONE_LOOP},
    reset: dict.fromkeys(ROLES, ("grpc",)),
    break_link: {"drafter": ("local",), "verifier": "the same link", "coordinator": "has no end"},
    garbage: dict.fromkeys(ROLES, ("grpc",)),
    half: dict.fromkeys(ROLES, ("grpc",)),
    garbage_packet: {"drafter": ("local",), "verifier": _DRAFTS_ONLY, "coordinator": _DRAFTS_ONLY},
    half_packet: {"drafter": ("local",), "verifier": _DRAFTS_ONLY, "coordinator": _DRAFTS_ONLY},
    repeat: dict.fromkeys(ROLES, ("local",)),
    late_packets: {"drafter": ("local",), "verifier": _DRAFTS_ONLY, "coordinator": _DRAFTS_ONLY},
    silence: dict.fromkeys(ROLES, ("grpc",)),
    slow: dict.fromkeys(ROLES, ("grpc",)),
}
IMPATIENT = (hang, late_packets, garbage_packet)
"""Faults under which the verifier waits for drafts in vain: for a moment, not for seconds."""
