"""Starts, watches and ends all ranks of the verifier together.

Rank 0 is this process. With tp_size=1 there is nothing but it, and nothing of this is in the way.
Refuses to go on without a rank: the first one that ends, hangs or is out of step ends the verifier,
which whoever supervises it restarts as one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from minedraft.errors import MineDraftError, WorkerUnavailableError
from minedraft.exit import end_quickly
from minedraft.model.loader import load_runner, refuse_ranks
from minedraft.model.parallel.group import RankGroup, RankSpec
from minedraft.model.parallel.leader import Leader
from minedraft.services.verifier.rank_cores import rank_cores
from minedraft.services.verifier.rank_process import RankOrder, RankProcess
from minedraft.worker.cores import parse_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from minedraft.model.executor import DeviceExecutor
    from minedraft.model.runner import ModelRunner
    from minedraft.services.verifier.config import VerifierConfig

log = structlog.get_logger(__name__)

_STOP_PATIENCE_S = 3.0
"""Longest an orderly end may take; then the ranks are killed."""


class Ranks:
    """Ranks 0..N-1 of one model; use with `async with`, inside the device executor.

    Args:
        config: Of the verifier.
        executor: Rank 0's device thread.
    """

    def __init__(self, config: VerifierConfig, executor: DeviceExecutor) -> None:
        self._config = config
        self._executor = executor
        self._others: list[RankProcess] = []
        self._leader: Leader | None = None
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[str] = self._loop.create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None and self._leader is not None and not self._failed.done():
                await self._stop(self._leader)
        finally:
            await self._kill()

    @property
    def background(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """Loops that must live as long as the server: it ends when they raise."""
        return (self.watch,) if self._others else ()

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes of ranks 1..N-1."""
        return tuple(rank.pid for rank in self._others)

    async def load(self) -> ModelRunner:
        """Start the other ranks and load every rank's share.

        Raises:
            ModelError: the model cannot be served, or not by that many ranks.
            WorkerUnavailableError: a rank ended or did not come.
        """
        config = self._config
        end_quickly()
        if config.tp_size == 1:
            return await self._executor.run(self._load, None)
        await self._executor.run(refuse_ranks, config.model, config.tp_size)
        meeting = await asyncio.to_thread(tempfile.mkdtemp, prefix="minedraft-ranks-")
        try:
            return await self._start(str(Path(meeting) / "store"))
        finally:
            await asyncio.to_thread(shutil.rmtree, meeting, ignore_errors=True)

    async def watch(self) -> None:
        """Wait until the ranks cannot go on; by then all others are killed.

        Raises:
            WorkerUnavailableError: always; says which rank, and how.
        """
        ends = [asyncio.create_task(rank.died()) for rank in self._others]
        news: list[asyncio.Future[Any]] = [*ends, self._failed]
        try:
            await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            # A step that failed is often the first news of a rank that died: say which one.
            if not any(end.done() for end in ends):
                await asyncio.wait(ends, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            reason = self._failed.result() if self._failed.done() else ""
            deaths = [str(end.exception()) for end in ends if end.done() and not end.cancelled()]
            reason = deaths[0] if deaths else reason
        finally:
            for end in ends:
                end.cancel()
        # Frees this rank's device thread too, should it wait for one that hangs.
        await self._kill()
        log.error("ranks.lost", reason=reason)
        raise WorkerUnavailableError(f"{reason}; the verifier ends with all its ranks")

    async def _start(self, store: str) -> ModelRunner:
        config = self._config
        cores = rank_cores(config.cpus, config.tp_size)
        for rank in range(1, config.tp_size):
            mine = cores[rank]
            order = RankOrder(
                rank=rank,
                size=config.tp_size,
                parent_pid=os.getpid(),
                store=store,
                model=config.model,
                dtype=config.dtype,
                kernels=config.kernels,
                num_blocks=config.num_blocks,
                block_size=config.block_size,
                device=rank_device(config.device, rank),
                cores=None if mine is None else tuple(sorted(mine)),
                threads=config.threads,
                timeout_s=config.tp_timeout_s,
            )
            self._others.append(await RankProcess.start(order))
        loading = asyncio.create_task(self._meet_and_load(store), name="ranks.load")
        watching = asyncio.create_task(self.watch(), name="ranks.watch")
        both: tuple[asyncio.Task[Any], ...] = (loading, watching)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and not isinstance(loading.exception(), WorkerUnavailableError):
                return loading.result()
            await watching  # knows which rank it was
            raise WorkerUnavailableError("a rank is gone")  # not reached: watch always raises
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            for task in both:
                if not task.cancelled():
                    task.exception()  # one of the two is told; asyncio would log the other

    async def _meet_and_load(self, store: str) -> ModelRunner:
        # Meeting blocks the device thread, so nobody waits there for a rank that never comes up.
        for rank in self._others:
            await rank.up()
        return await self._executor.run(self._lead, store)

    def _lead(self, store: str) -> ModelRunner:
        config = self._config
        device = rank_device(config.device, 0)
        try:
            group = RankGroup(
                RankSpec(
                    rank=0,
                    size=config.tp_size,
                    store=store,
                    device=device,
                    timeout_s=config.tp_timeout_s,
                )
            )
            runner = self._load(group)
        except WorkerUnavailableError as err:
            self._on_failure(str(err))
            raise
        self._leader = Leader(group, self._on_failure)
        runner.lead = self._leader.lead
        return runner

    def _load(self, group: RankGroup | None) -> ModelRunner:
        config = self._config
        return load_runner(
            config.model,
            dtype=config.dtype,
            kernels=config.kernels,
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            device=config.device if group is None else rank_device(config.device, 0),
            ranks=group,
            spare=sorted(parse_cores(config.spare_cpus) or ()),
        )

    def _on_failure(self, reason: str) -> None:
        def fail() -> None:
            if not self._failed.done():
                self._failed.set_result(reason)

        self._loop.call_soon_threadsafe(fail)

    async def _stop(self, leader: Leader) -> None:
        try:
            async with asyncio.timeout(_STOP_PATIENCE_S):
                await self._executor.run(leader.stop)
                for rank in self._others:
                    await rank.ended()
        except (TimeoutError, MineDraftError) as err:
            log.warning("ranks.killed", reason=str(err) or f"no end in {_STOP_PATIENCE_S:g} s")

    async def _kill(self) -> None:
        for rank in self._others:
            rank.kill()
        for rank in self._others:
            await rank.ended()


def rank_device(device: str, rank: int) -> str:
    """Return a rank's own device: `cuda` means one GPU per rank."""
    return f"cuda:{rank}" if device == "cuda" else device
