"""The faults of `make soak`, once each, under the twelve streams: deaths, ends, freezes, a swap."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from fleet import until

from hostile_checks.stage import is_linked

if TYPE_CHECKING:
    from hostile_checks.stage import Stage, Trial

_FREEZE_S = 3.0
_ROLES = ("drafter", "verifier", "coordinator")


async def deaths(stage: Stage) -> None:
    """Kill -9, SIGTERM and SIGSTOP of each role; a swap of the drafter's model."""
    async with stage.trial("faults of the soak", coordinator=("--grace-s=1",)) as trial:
        for role in _ROLES:
            service = trial.fleet.services[role]
            await service.kill()
            await service.start()
            await _settled(trial)
            await service.stop()
            await service.start()
            await _settled(trial)
            service.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(_FREEZE_S)
            finally:
                service.signal(signal.SIGCONT)
            await _settled(trial)
        await trial.watcher.swap_drafter(model=str(stage.draft))
        await _settled(trial)
        # Its memory is that of its last life; the reset of the peak was in its first.
        trial.idle_bytes["coordinator"] = trial.fleet.services["coordinator"].rss_bytes()


async def _settled(trial: Trial) -> None:
    await until(trial.watcher, is_linked)
    await trial.drafts_again()
    await trial.streams_again()
