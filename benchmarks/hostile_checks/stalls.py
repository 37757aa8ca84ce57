"""Kind 1: the verifier's device hangs while its loop lives; the coordinator itself is paused."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

from fleet import is_up, until

from hostile_checks.threads import busiest, continue_thread, cpu_ticks, stop_thread

if TYPE_CHECKING:
    from hostile_checks.stage import Stage, Trial
    from minedraft.admin import Status

_LIMIT_S = 8.0
_HOLD = 3.0
"""How long the device stands, in limits."""
_NOTICED = 1.2
"""Within how many limits the session must be left."""
_BACK_S = 60.0


def _is_left(status: Status) -> bool:
    return any(w.role == "verifier" and not w.connected for w in status.workers)


async def hung_device(stage: Stage) -> None:
    """Stop the verifier's device thread for three step limits."""
    options = (f"--step-timeout-s={_LIMIT_S:g}",)
    async with stage.trial("hung device", coordinator=options) as trial:
        verifier = trial.fleet.services["verifier"]
        before = cpu_ticks(verifier.pid)
        await asyncio.sleep(1.0)
        thread = busiest(before, cpu_ticks(verifier.pid))
        stop_thread(thread)
        began = time.monotonic()
        try:
            async with asyncio.timeout(_HOLD * _LIMIT_S):
                await until(trial.watcher, _is_left)
            left_s = time.monotonic() - began
            await asyncio.sleep(max(0.0, began + _HOLD * _LIMIT_S - time.monotonic()))
        except TimeoutError:
            left_s = _HOLD * _LIMIT_S
        finally:
            continue_thread(thread)
        await _works_as_before(stage, trial, "hung device")
    stage.say("hung device: session left, in step limits", left_s / _LIMIT_S, _NOTICED)


async def paused_coordinator(stage: Stage) -> None:
    """Stop the coordinator for longer than its own step limit: that is nobody else's stall."""
    limit_s = 4.0
    options = (f"--step-timeout-s={limit_s:g}",)
    async with stage.trial("paused coordinator", coordinator=options) as trial:
        coordinator = trial.fleet.services["coordinator"]
        epochs = [w.link_epoch for w in (await until(trial.watcher, is_up)).workers]
        coordinator.signal(signal.SIGSTOP)
        await asyncio.sleep(2 * limit_s)
        coordinator.signal(signal.SIGCONT)
        await trial.streams_again()
        blamed = sum(
            path.read_text(errors="replace").count("verifier.stalled")
            for path in (stage.work / "paused-coordinator").glob("coordinator*.log")
        )
        await _works_as_before(stage, trial, "paused coordinator")
        after = [w.link_epoch for w in (await until(trial.watcher, is_up)).workers]
    stage.say(
        "paused coordinator: times it blamed the verifier", blamed, 0, detail=f"{epochs} {after}"
    )


async def _works_as_before(stage: Stage, trial: Trial, name: str) -> None:
    """Links, drafts and swaps, without a restart."""
    wrong = []
    try:
        async with asyncio.timeout(_BACK_S):
            await until(trial.watcher, is_up)
            await trial.drafts_again()
            await trial.watcher.swap_drafter(model=str(stage.draft), timeout_s=_BACK_S)
            await trial.drafts_again()
            await trial.streams_again()
    except Exception as err:  # noqa: BLE001 said in the line
        status = await trial.watcher.status()
        wrong.append(f"{type(err).__name__}: {err}")
        wrong += [f"{w.role}: {w.last_error}" for w in status.workers if w.last_error]
    stage.say(f"{name}: links, drafts or swaps that do not work afterwards", len(wrong), 0,
              detail="; ".join(wrong)[:300])  # fmt: skip
