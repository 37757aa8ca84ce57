"""Assigns requests to batches. Pure.

The assignment rules are MineDraft's (Tang et al., ICML 2026), stated on named batches
instead of parity bits, plus active re-balancing at the sync point:

* before the first step of a busy period, new requests go where `balance` says: batch 0 if
  `balance >= 0`, else batch 1, which fills the two alternately;
* later ones go to the batch about to be drafted (the one whose next step is being planned);
* finish, abort and preemption undo their share of `balance`;
* when nothing is left, the period is over and everything is reset;
* if one batch is empty the other one runs alone, draft then verify: sequential speculation;
* at a batch's sync point (none of its members has a step in flight) members move to a batch that
  has at least two fewer, newest first. The paper repairs imbalance only through arrivals.

With one batch the rules are trivial, with more than two "smaller batch" replaces `balance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.errors import StateError

if TYPE_CHECKING:
    from minedraft.types import RequestId


class BatchManager:
    """Named batches of request ids, in order of joining.

    Args:
        num_batches: 1 (sequential), 2 (MineDraft) or more.
        max_batch_size: Most members of one batch (m).
    """

    def __init__(self, num_batches: int, max_batch_size: int) -> None:
        self.num_batches = num_batches
        self.max_batch_size = max_batch_size
        self.balance = 0
        """Members of batch 1 minus members of batch 0, of batches 0 and 1."""
        self.started = False
        """Whether a step was planned since the last time everything was empty."""
        self._members: list[dict[RequestId, None]] = [{} for _ in range(num_batches)]

    def members(self, batch: int) -> tuple[RequestId, ...]:
        """Ids of one batch, oldest member first."""
        return tuple(self._members[batch])

    def size(self, batch: int) -> int:
        """Members of one batch."""
        return len(self._members[batch])

    def batch_of(self, request_id: RequestId) -> int | None:
        """The batch of a request, or None."""
        for batch, members in enumerate(self._members):
            if request_id in members:
                return batch
        return None

    def choose(self, drafting: int) -> int | None:
        """Return the batch for a new request; None if that batch is full.

        Args:
            drafting: The batch whose next step is being planned.
        """
        batch = drafting if self.started else self._first_fill()
        return batch if self.size(batch) < self.max_batch_size else None

    def add(self, request_id: RequestId, batch: int) -> None:
        """Put a request into a batch.

        Raises:
            StateError: it is in one already, or the batch is full.
        """
        if self.batch_of(request_id) is not None:
            raise StateError(f"request {request_id} is in a batch already")
        if self.size(batch) >= self.max_batch_size:
            raise StateError(f"batch {batch} is full")
        self._members[batch][request_id] = None
        self._shift(batch, 1)

    def remove(self, request_id: RequestId) -> None:
        """Take a request out (finish, abort, preemption). Unknown ids are fine."""
        batch = self.batch_of(request_id)
        if batch is None:
            return
        del self._members[batch][request_id]
        self._shift(batch, -1)
        if not any(self._members):
            self.started = False

    def start(self) -> None:
        """Note that a step was planned: the first fill is over."""
        self.started = True

    def rebalance(self, batch: int) -> tuple[tuple[RequestId, int], ...]:
        """Move members of `batch`, which is at its sync point, to smaller batches.

        Returns:
            (request, new batch), in the order of moving. Afterwards no other batch has two fewer
            members than this one.
        """
        moved: list[tuple[RequestId, int]] = []
        while True:
            smallest = min(range(self.num_batches), key=lambda b: (self.size(b), b))
            if self.size(batch) - self.size(smallest) < 2:  # noqa: PLR2004 moving one would not help
                return tuple(moved)
            request_id = next(reversed(self._members[batch]))
            del self._members[batch][request_id]
            self._shift(batch, -1)
            self._members[smallest][request_id] = None
            self._shift(smallest, 1)
            moved.append((request_id, smallest))

    def check(self) -> None:
        """Raise StateError if an invariant is broken."""
        ids = [request_id for members in self._members for request_id in members]
        if len(ids) != len(set(ids)):
            raise StateError("a request is in two batches")
        if any(len(members) > self.max_batch_size for members in self._members):
            raise StateError("a batch is over its size")
        if self.num_batches > 1 and self.balance != self.size(1) - self.size(0):
            raise StateError(f"balance is {self.balance}, want {self.size(1) - self.size(0)}")

    def _first_fill(self) -> int:
        if self.num_batches == 2:  # noqa: PLR2004 the paper's case, by the paper's rule
            return 0 if self.balance >= 0 else 1
        return min(range(self.num_batches), key=lambda b: (self.size(b), b))

    def _shift(self, batch: int, count: int) -> None:
        if batch == 0:
            self.balance -= count
        elif batch == 1:
            self.balance += count
