"""Swaps the drafter under load: load or join, warm up, cut over, drain, release the old one.

What happens to the two draft sources meanwhile is told in `core.draft_source`. Whatever fails
before the cut-over leaves the old one in place. Whoever ordered a swap is told in time: what has to
be cleaned up takes no longer than that from them, and until it is done the next swap is refused.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from minedraft.admin import SwapOrder, SwapResult, SwapStatus
from minedraft.errors import (
    MineDraftError,
    PreconditionError,
    RequestNotFoundError,
    SwapInProgressError,
    WorkerUnavailableError,
)
from minedraft.services.coordinator.workers.handshake import check_draft_model
from minedraft.services.coordinator.workers.members import Member
from minedraft.services.coordinator.workers.warm_up import WarmUp

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.workers.membership import Membership
    from minedraft.transport.worker_client import DrafterConnection
    from minedraft.types import ModelInfo

    Drafter = Member[DrafterConnection]

log = structlog.get_logger(__name__)

_LOAD_S = 600.0
_JOIN_S = 30.0
_WARM_UP_S = 120.0
_DRAIN_S = 30.0
_CALL_S = 5.0
_POLL_S = 0.05
_TELL_S = 0.5
"""Before the deadline of whoever ordered a swap: time to undo it and to say why."""


class Swapper:
    """Does one swap at a time.

    Args:
        membership: Whose drafters are swapped.
        clock: Monotonic nanoseconds.
    """

    def __init__(
        self, membership: Membership, *, clock: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._membership = membership
        self._engine = membership.engine
        self._clock = clock
        self._is_busy = False
        self._clean_up: asyncio.Task[None] | None = None
        """What the last swap had to put away; it may take longer than the swap."""
        self._warm_up = WarmUp(membership)
        self._until_s: float | None = None
        """Loop time at which it must have an answer; None: its own limits suffice."""
        self._told_s: float | None = None
        """Loop time until which it may put things away before it says so."""
        self.status = SwapStatus()

    async def swap(self, order: SwapOrder, timeout_s: float | None = None) -> SwapResult:
        """Change the drafter.

        Args:
            order: What to draft with.
            timeout_s: How long whoever ordered it will wait: a swap that cannot be done by then
                fails a little earlier, and says what it waited for.

        Raises:
            SwapInProgressError: another swap is under way.
            IncompatibleWorkerError: the new drafter does not fit; says what differs.
            PreconditionError: no verifier to compare it with, nobody to load the model, or the new
                drafter is a member already, maybe under another address.
            RequestNotFoundError: the drafter to replace is none.
            MineDraftError: it could not be brought up; the old one stays.
        """
        if self._is_busy:
            raise SwapInProgressError("another swap of the drafter is under way")
        if self._clean_up is not None and not self._clean_up.done():
            raise SwapInProgressError("the last swap of the drafter is still being put away")
        self._is_busy = True
        self._warm_up, self._until_s, self._told_s = WarmUp(self._membership), None, None
        if timeout_s is not None:
            told_s = min(timeout_s / 4, _TELL_S)
            self._until_s = asyncio.get_running_loop().time() + timeout_s - told_s
            self._told_s = self._until_s + told_s / 2
        began = self._clock()
        log.info("swap.began", model=order.model, address=order.address)
        try:
            result = await self._swap(order, began)
        except BaseException as err:
            self.status = SwapStatus(
                self.status.num_done,
                self.status.num_failed + 1,
                self.status.last_duration_ns,
                str(err) if isinstance(err, MineDraftError) else type(err).__name__,
            )
            log.warning("swap.failed", why=self.status.last_error)
            raise
        finally:
            self._is_busy = False
        self.status = SwapStatus(
            self.status.num_done + 1, self.status.num_failed, result.duration_ns, ""
        )
        log.info(
            "swap.done",
            epoch=result.epoch,
            model=result.model.name,
            duration_ms=result.duration_ns // 10**6,
            warm_up_ms=result.warm_up_ns // 10**6,
        )
        return result

    async def _swap(self, order: SwapOrder, began: int) -> SwapResult:
        target = self._membership.model
        if target is None or self._membership.verifier.connection is None:
            why = self._membership.verifier.last_error or "none has joined yet"
            raise PreconditionError(f"no verifier to compare a new drafter with: {why}")
        old = self._old(order.replace)
        if order.address:
            new = await self._join(order.address)
            model = new.info.model if new.info else target
        else:
            new, model = await self._load(old, order.model, target)
            old = new
        try:
            if new is old:
                check_draft_model(model, target, self._membership.num_token_ids)
                await self._hand_over(old)
            before = old.source if old else None
            source, replaced, warm_up_ns = await self._take_over(old, new, model)
        except BaseException:
            await self._put_away(self._go_back(new) if new is old else self._send_away(new))
            raise
        try:
            await self._drain(replaced)
        finally:  # also if whoever ordered the swap has left: there is no way back
            if replaced is not None:
                self._membership.links.drop(replaced)
            self._membership.links.take_back(new)
            if old is not None:
                await self._put_away(self._let_go(old, replaced or before, new))
        return SwapResult(source.source_id, model, self._clock() - began, warm_up_ns)

    def _old(self, address: str) -> Drafter | None:
        """Find the drafter to replace; None: there is no drafter, the new one is the first."""
        for member in self._membership.drafters:
            if address in {"", member.address}:
                return member
        if address:
            raise RequestNotFoundError(f"no drafter has the address {address!r}")
        return None

    async def _join(self, address: str) -> Drafter:
        """Dial another drafter; it is compared in the handshake like any other."""
        if any(member.address == address for member in self._membership.drafters):
            raise PreconditionError(f"drafter {address} is a member already")
        new: Drafter = Member("drafter", address)
        self._membership.links.lend(new)
        self._membership.join(new)
        limit_s = self._at_most(_JOIN_S)
        try:
            async with asyncio.timeout(limit_s):
                while new.connection is None:
                    if new.refusal is not None:
                        raise new.refusal
                    await asyncio.sleep(_POLL_S)
        except BaseException as err:
            await self._put_away(self._send_away(new))
            if isinstance(err, TimeoutError):
                raise WorkerUnavailableError(
                    f"drafter {address} did not join within {limit_s:.3g} s: "
                    f"{new.last_error or 'no answer yet'}"
                ) from None
            raise
        return new

    async def _load(
        self, drafter: Drafter | None, model: str, target: ModelInfo
    ) -> tuple[Drafter, ModelInfo]:
        """Have the drafter load a model beside the one that drafts."""
        if drafter is None or drafter.connection is None:
            who = "no drafter is" if drafter is None else f"drafter {drafter.address} is not"
            raise PreconditionError(
                f"{who} connected to load {model!r}: start one with that model, "
                "or give the address of one that runs"
            )
        connection, limit_s = drafter.connection, self._at_most(_LOAD_S)
        try:
            async with asyncio.timeout(limit_s):
                loaded = await connection.load_model(model, target.tokenizer_fingerprint, _LOAD_S)
        except asyncio.CancelledError:
            await self._put_away(self._drop(drafter, 0))  # it may be done just now
            raise
        except TimeoutError:
            await self._put_away(self._drop(drafter, 0))
            raise WorkerUnavailableError(
                f"drafter {drafter.address} was still loading {model!r} after {limit_s:.3g} s"
            ) from None
        return drafter, loaded

    async def _hand_over(self, drafter: Drafter) -> None:
        """Order the links of a drafter from now on; wait for one that is in the making."""
        limit_s = self._at_most(_WARM_UP_S)
        try:
            async with asyncio.timeout(limit_s):
                await self._membership.links.hand_over(drafter)
        except TimeoutError:
            raise WorkerUnavailableError(
                f"a link of drafter {drafter.address} was still being formed after {limit_s:.3g} s"
            ) from None

    async def _take_over(
        self, old: Drafter | None, new: Drafter, model: ModelInfo
    ) -> tuple[DraftSource, DraftSource | None, int]:
        """Link the new drafter, warm it up, cut over.

        A link that breaks in the warm-up is formed again, as long as the drafter itself is there.

        Returns:
            The new source, the one that it replaced, and how long this took, ns.
        """
        began = self._clock()
        limit_s = self._at_most(_WARM_UP_S)
        try:
            async with asyncio.timeout(limit_s):
                source = await self._warm_up.run(new, model)
        except TimeoutError:
            why = f": {self._warm_up.trouble}" if self._warm_up.trouble else ""
            raise WorkerUnavailableError(
                f"drafter {new.address} did not catch up within {limit_s:.3g} s{why}"
            ) from None
        replaced = old.source if old else None  # another one than at first, if that was lost
        self._engine.cut_over(replaced, source)
        if old is not None:  # nobody links it again on its way out
            self._membership.links.lend(old)
        if new.info is not None:  # at once: its link may be lost and formed anew from here on
            new.info = replace(new.info, model=model)
        return source, replaced, self._clock() - began

    def _at_most(self, limit_s: float) -> float:
        """Bound a part of the swap, so that whoever ordered it is told why before it gives up."""
        if self._until_s is None:
            return limit_s
        return max(min(limit_s, self._until_s - asyncio.get_running_loop().time()), 0.0)

    async def _drain(self, replaced: DraftSource | None) -> None:
        """Wait until no step in flight needs the old link; late steps continue without drafts."""
        if replaced is None:
            return
        try:
            async with asyncio.timeout(self._at_most(_DRAIN_S)):
                await self._engine.until(lambda: not self._engine.core.uses(replaced))
        except TimeoutError:
            log.warning("swap.not_drained", epoch=replaced.source_id)

    # -- what is put away -------------------------------------------------------------------

    async def _put_away(self, work: Coroutine[None, None, None]) -> None:
        """Have something done in any case; wait for it as long as there is time."""
        before = self._clean_up
        self._clean_up = asyncio.get_running_loop().create_task(
            _after(before, work), name="swap clean-up"
        )
        left_s = None
        if self._told_s is not None:
            left_s = max(self._told_s - asyncio.get_running_loop().time(), 0.0)
        await asyncio.wait((self._clean_up,), timeout=left_s)

    async def _let_go(self, old: Drafter, source: DraftSource | None, new: Drafter) -> None:
        """Give the old link up at its drafter; if another process took over, the old one leaves."""
        undropped, old.undropped = old.undropped, None
        for each in (source, undropped):  # what it is not told to drop it keeps, with the model
            if each is not None:
                await self._drop(old, each.source_id)
        if new is not old:
            await self._membership.leave(old)
            self._membership.links.take_back(old)

    async def _send_away(self, new: Drafter) -> None:
        """Have a drafter leave that was to take over."""
        if self._warm_up.source is not None:
            await self._drop(new, self._warm_up.source.source_id)
        await self._membership.leave(new)
        self._membership.links.take_back(new)

    async def _go_back(self, drafter: Drafter) -> None:
        """Have a drafter drop the new model and keep the one that drafts."""
        if self._warm_up.source is not None:  # its end of that link may stand
            await self._drop(drafter, self._warm_up.source.source_id)
        await self._drop(drafter, 0)
        try:
            if drafter.connection is not None:  # without a link that stands it cannot go back
                drafter.info = await drafter.connection.get_info(_CALL_S)
        except MineDraftError as err:
            log.warning("swap.model_unknown", drafter=drafter.address, why=str(err))
        finally:
            self._membership.links.take_back(drafter)

    async def _drop(self, drafter: Drafter, epoch: int) -> None:
        if drafter.connection is None:
            return
        try:
            await drafter.connection.drop_link(epoch, _CALL_S)
        except MineDraftError as err:
            log.warning("swap.not_dropped", epoch=epoch, why=str(err))


async def _after(before: asyncio.Task[None] | None, work: Coroutine[None, None, None]) -> None:
    """Run one thing after another, and only log their failures."""
    if before is not None:
        await asyncio.wait((before,))
    try:
        await work
    except Exception:
        log.exception("swap.not_put_away")
