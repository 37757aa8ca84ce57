"""Kind 13: the network goes silent while tokens flow, on each kind of connection."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from fleet import is_up, until

from hostile_checks.relay import Relay
from hostile_checks.stage import PATIENT, is_linked
from hostile_checks.watched import Watched
from minedraft.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from hostile_checks.stage import Stage, Trial
    from minedraft.admin import Status

_NOTICED_S = 15.0
_HOLE_S = 20.0
_HEALED_S = 4.0


async def silent_network(stage: Stage) -> None:
    """One relay each: before verifier, drafter and the verifier's end of the link."""
    async with AsyncExitStack() as stack:
        relays = {name: Relay() for name in ("verifier", "drafter", "link", "client")}
        for relay in relays.values():
            await relay.start()
            stack.push_async_callback(relay.close)

        def front(role: str, address: str) -> str:
            if role == "coordinator":
                return address
            relays[role].upstream = address
            if role == "verifier":
                relays["link"].upstream = address
            return relays[role].address

        async with stage.trial(
            "silent network",
            verifier=(f"--link-address={relays['link'].address}",),
            coordinator=("--link=grpc",),
            front=front,
        ) as trial:
            await _worker(stage, trial, relays["drafter"], "drafter", _is_gone("drafter"))
            await _worker(stage, trial, relays["verifier"], "verifier", _is_gone("verifier"))
            await _link(stage, trial, relays["link"])
            relays["client"].upstream = trial.fleet.address
            await _client(stage, relays["client"])


def _is_gone(role: str) -> Callable[[Status], bool]:
    def holds(status: Status) -> bool:
        return any(w.role == role and not w.connected for w in status.workers)

    return holds


async def _worker(
    stage: Stage, trial: Trial, relay: Relay, name: str, is_noticed: Callable[[Status], bool]
) -> None:
    await until(trial.watcher, is_up)
    await trial.streams_again()
    began = time.monotonic()
    relay.go_silent()
    try:
        async with asyncio.timeout(2 * _HOLE_S):
            await until(trial.watcher, is_noticed)
    except TimeoutError:
        pass
    noticed_s = time.monotonic() - began
    relay.heal()
    await until(trial.watcher, is_up)
    await trial.drafts_again()
    stage.say(f"silent network to the {name}: noticed after, s", noticed_s, _NOTICED_S)


async def _link(stage: Stage, trial: Trial, relay: Relay) -> None:
    epoch = max(w.link_epoch for w in (await until(trial.watcher, is_linked)).workers)

    def is_noticed(status: Status) -> bool:
        return all(w.link_epoch != epoch for w in status.workers)

    await _worker(stage, trial, relay, "verifier's end of the link", is_noticed)


async def _client(stage: Stage, relay: Relay) -> None:
    async with await Client.connect(relay.address, retry=PATIENT) as client:
        watched = Watched(client, num_tokens=2500)
        async with watched.running():
            while not watched.reference:  # noqa: ASYNC110 one undisturbed answer first
                await asyncio.sleep(0.05)
            while not 100 < watched.num_tokens_now < 1000:  # noqa: ASYNC110 well within the next
                await asyncio.sleep(0.01)
            relay.go_silent()
            began = time.monotonic()
            await asyncio.sleep(_HEALED_S)
            relay.heal()
            longest = 4 * _HOLE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(longest):
                    while watched.longest(began, time.monotonic()) < _HEALED_S:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                    longest = watched.longest(began, time.monotonic())
    stage.say("silent network to the client: its stream goes on after, s", longest, _NOTICED_S)
    stage.say("silent network to the client: deltas that changed", watched.num_changed, 0)
