"""Hot swap of the drafter: bring the new one up, warm it, cut over, let the old one go.

The old drafter drafts until the new one has caught up with every live request; a step in flight at
the cut-over still gets its drafts from the old one. Whatever fails before the cut-over leaves the
old one in place. Drafts cannot change the output, so neither can a swap.
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
    from collections.abc import Callable

    from minedraft.services.coordinator.workers.links import Formed
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
        self._warm_up = WarmUp(membership)
        self._until_s: float | None = None
        """Loop time at which it must have an answer; None: its own limits suffice."""
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
            MineDraftError: it could not be brought up; the old one goes on.
        """
        if self._is_busy:
            raise SwapInProgressError("another swap of the drafter is under way")
        self._is_busy = True
        self._warm_up, self._until_s = WarmUp(self._membership), None
        if timeout_s is not None:
            told_s = min(timeout_s / 4, _TELL_S)
            self._until_s = asyncio.get_running_loop().time() + timeout_s - told_s
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
                await self._membership.links.hand_over(old)
            formed, old_epoch, warm_up_ns = await self._take_over(old, new, model)
        except BaseException:
            if new is old:
                await asyncio.shield(self._go_back(new))
            else:
                if self._warm_up.epoch:
                    await asyncio.shield(self._drop(new, self._warm_up.epoch))
                await self._membership.leave(new)
            raise
        try:
            await self._drain(old_epoch)
        finally:  # also if whoever ordered the swap has left: there is no way back
            self._settle(old, new, formed)
            await self._let_go(old, old_epoch, new)
        return SwapResult(formed.epoch, model, self._clock() - began, warm_up_ns)

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
        new: Drafter = Member("drafter", address, is_joining=True)
        self._membership.join(new)
        limit_s = self._at_most(_JOIN_S)
        try:
            async with asyncio.timeout(limit_s):
                while new.connection is None:
                    if new.refusal is not None:
                        raise new.refusal
                    await asyncio.sleep(_POLL_S)
        except BaseException as err:
            await self._membership.leave(new)
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
            await asyncio.shield(self._drop(drafter, 0))  # it may be done just now
            raise
        except TimeoutError:
            await asyncio.shield(self._drop(drafter, 0))
            raise WorkerUnavailableError(
                f"drafter {drafter.address} was still loading {model!r} after {limit_s:.3g} s"
            ) from None
        return drafter, loaded

    async def _take_over(
        self, old: Drafter | None, new: Drafter, model: ModelInfo
    ) -> tuple[Formed, int, int]:
        """Link the new drafter, warm it up, cut over.

        A link that breaks in the warm-up is formed again, as long as the drafter itself is there.

        Returns:
            The new link, the epoch of the old one (0: none), and how long this took.
        """
        began = self._clock()
        limit_s = self._at_most(_WARM_UP_S)
        try:
            async with asyncio.timeout(limit_s):
                formed = await self._warm_up.run(new, model)
        except TimeoutError:
            why = f": {self._warm_up.trouble}" if self._warm_up.trouble else ""
            raise WorkerUnavailableError(
                f"drafter {new.address} did not catch up within {limit_s:.3g} s{why}"
            ) from None
        old_epoch = old.link_epoch if old else 0  # another one than at first, if that was lost
        self._engine.cut_over(old_epoch, formed.epoch)
        if new.info is not None:  # at once: its link may be lost and formed anew from here on
            new.info = replace(new.info, model=model)
        return formed, old_epoch, self._clock() - began

    def _at_most(self, limit_s: float) -> float:
        """Bound a part of the swap, so that whoever ordered it is told why before it gives up."""
        if self._until_s is None:
            return limit_s
        return max(min(limit_s, self._until_s - asyncio.get_running_loop().time()), 0.0)

    async def _drain(self, old_epoch: int) -> None:
        """Wait until no step in flight needs the old link."""
        if old_epoch == 0:
            return
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._engine.until(lambda: not self._engine.core.uses(old_epoch))
        except TimeoutError:
            log.warning("swap.not_drained", epoch=old_epoch)

    def _settle(self, old: Drafter | None, new: Drafter, formed: Formed) -> None:
        """Note who drafts now; at once, so that nobody links a member in between."""
        if old is not None:
            old_epoch, old.link_epoch, old.link_description = old.link_epoch, 0, ""
            self._engine.drafter_down(old_epoch)
        self._membership.links.take_back(new)
        if new.warming_epoch != formed.epoch:  # lost while the old link drained
            self._membership.links.unlink(new)  # a new one is formed like after any loss
            return
        new.link_epoch, new.warming_epoch = formed.epoch, 0
        new.link_description = formed.description

    async def _let_go(self, old: Drafter | None, old_epoch: int, new: Drafter) -> None:
        """Drop the old link; if another process took over, the old one leaves altogether."""
        if old is None:
            return
        if old_epoch:  # else both ends keep it for as long as the old process lives
            await self._drop(old, old_epoch)
        if new is not old:
            await self._membership.leave(old)

    async def _go_back(self, drafter: Drafter) -> None:
        """Have a drafter give the new model up and go on with the one that drafts."""
        if self._warm_up.epoch:  # its end of that link may stand
            await self._drop(drafter, self._warm_up.epoch)
        await self._drop(drafter, 0)
        try:
            if drafter.connection is not None:  # without a link that stands it cannot go back
                drafter.info = await drafter.connection.get_info(_CALL_S)
        except MineDraftError as err:
            log.warning("swap.model_unknown", drafter=drafter.address, why=str(err))
        self._membership.links.take_back(drafter)

    async def _drop(self, drafter: Drafter, epoch: int) -> None:
        if drafter.connection is None:
            return
        try:
            await drafter.connection.drop_link(epoch, _CALL_S)
        except MineDraftError as err:
            log.warning("swap.not_dropped", epoch=epoch, why=str(err))
