"""Assigns requests to batches. Pure.

The assignment rules are those of MineDraft (Tang et al., ICML 2026), stated on named batches
instead of parity bits, plus active re-balancing at the sync point (`assignment` has the paper's
own):

* before the first step of a busy period, new requests go to the smaller batch, so the two fill
  alternately;
* later ones go to the batch about to be drafted (the one whose next step is being planned);
* when nothing is left, the period is over and everything is reset;
* if one batch is empty the other one runs alone, draft then verify: sequential speculation;
* at a batch's sync point (none of its members has a step in flight) members move to a batch that
  has at least two fewer, newest first. The paper repairs imbalance only through arrivals.

The number of batches changes while requests run (`reshape`). Batches beyond it are closing: they
take no member, and give away all of theirs at their sync point. So no member ever moves with a step
in flight, and all batches have their shares when each has been at its sync point once.
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
        num_slots: Most members of all batches; default: what they hold.
    """

    def __init__(
        self, num_batches: int, max_batch_size: int, *, num_slots: int | None = None
    ) -> None:
        self.num_moves = 0
        """Members that went from one batch to another, since the start."""
        self.num_rotating_steps = 0
        """Steps planned while several batches were and each could have had a member."""
        self.num_fallback_steps = 0
        """Those of them at which a batch had none, so that the others ran without it."""
        self.started = False
        """Whether a step was planned since the last time everything was empty."""
        self._members: list[dict[RequestId, None]] = []
        self._batch_of: dict[RequestId, int] = {}
        self._left_over: dict[int, int] = {}
        """By batch that was not at its sync point since the last reshape: its members then."""
        self.reshape(num_batches, max_batch_size, num_slots=num_slots)

    def reshape(
        self, num_batches: int, max_batch_size: int, *, num_slots: int | None = None
    ) -> None:
        """Change how many batches there are, and their sizes. No member moves now.

        Args:
            num_batches: Batches from now on; others are closing.
            max_batch_size: Most members of one.
            num_slots: Most members of all; default: what they hold.
        """
        self.num_batches, self.max_batch_size = num_batches, max_batch_size
        self.num_slots = num_batches * max_batch_size if num_slots is None else num_slots
        self._members += [{} for _ in range(num_batches - len(self._members))]
        while len(self._members) > num_batches and not self._members[-1]:
            self._members.pop()
        self._left_over = {batch: self.size(batch) for batch in self.numbers}

    @property
    def numbers(self) -> range:
        """Numbers of all batches; those from `num_batches` on are closing."""
        return range(len(self._members))

    @property
    def balance(self) -> int:
        """Members of batch 1 minus members of batch 0."""
        return self.size(1) - self.size(0)

    def members(self, batch: int) -> tuple[RequestId, ...]:
        """Ids of one batch, oldest member first."""
        return tuple(self._members[batch]) if batch < len(self._members) else ()

    def size(self, batch: int) -> int:
        """Members of one batch; 0 if there is no such batch."""
        return len(self._members[batch]) if batch < len(self._members) else 0

    def batch_of(self, request_id: RequestId) -> int | None:
        """The batch of a request, or None."""
        return self._batch_of.get(request_id)

    def choose(self, drafting: int) -> int | None:
        """Return the batch for a new request; None if that batch is full, or all slots are taken.

        Args:
            drafting: The batch whose next step is being planned; it is not closing.
        """
        batch = drafting if self.started else self._smallest()
        return batch if self._has_room(batch) and len(self._batch_of) < self.num_slots else None

    def add(self, request_id: RequestId, batch: int) -> None:
        """Put a request into a batch.

        Raises:
            StateError: it is in one already, or the batch is full or closing.
        """
        if request_id in self._batch_of:
            raise StateError(f"request {request_id} is in a batch already")
        if not self._has_room(batch):
            raise StateError(f"batch {batch} is full")
        self._members[batch][request_id] = None
        self._batch_of[request_id] = batch

    def remove(self, request_id: RequestId) -> None:
        """Take a request out (finish, abort, preemption). Unknown ids are fine."""
        batch = self._batch_of.pop(request_id, None)
        if batch is None:
            return
        del self._members[batch][request_id]
        if not self._batch_of:
            self.started = False

    def start(self, batch: int) -> None:  # noqa: ARG002 other rules look at it
        """Note that a step of `batch` is planned: the first fill is over."""
        self.started = True
        if 1 < self.num_batches <= len(self._batch_of):
            self.num_rotating_steps += 1
            self.num_fallback_steps += not all(self._members[: self.num_batches])

    def rebalance(self, batch: int) -> tuple[tuple[RequestId, int], ...]:
        """Move members of `batch`, which is at its sync point, to smaller batches.

        Returns:
            (request, new batch), in the order of moving. Afterwards no other batch has two fewer
            members than this one, and a closing one has none, but for its `surplus`.
        """
        self._left_over.pop(batch, None)
        moved: list[tuple[RequestId, int]] = []
        while self._members[batch]:
            to = self._smallest()
            if not (self._gives(batch, to) and self._has_room(to)):
                break
            request_id = next(reversed(self._members[batch]))
            del self._members[batch][request_id]
            self._members[to][request_id] = None
            self._batch_of[request_id] = to
            moved.append((request_id, to))
        self.num_moves += len(moved)
        return tuple(moved)

    def surplus(self, batch: int) -> tuple[RequestId, ...]:
        """Members of `batch`, newest first, for which no batch has a place after a `rebalance`.

        There are some only where a reshape left fewer slots than there were members.
        """
        if batch >= self.num_batches:
            count = self.size(batch)
        else:
            count = self.size(batch) - self.max_batch_size
            if count <= 0 and not self._left_over:
                count = len(self._batch_of) - self.num_slots
        return tuple(reversed(self._members[batch]))[: max(count, 0)]

    def check(self) -> None:
        """Raise StateError if an invariant is broken."""
        places = [(name, batch) for batch in self.numbers for name in self._members[batch]]
        if len(places) != len(self._batch_of) or dict(places) != self._batch_of:
            raise StateError("a request is in two batches, or in another one than it says")
        for batch in self.numbers:
            limit = self.max_batch_size if batch < self.num_batches else 0
            if self.size(batch) > max(limit, self._left_over.get(batch, 0)):
                raise StateError(f"batch {batch} is over its size")

    def _smallest(self) -> int:
        return min(range(self.num_batches), key=lambda b: (len(self._members[b]), b))

    def _gives(self, batch: int, to: int) -> bool:
        """Whether `batch` gives a member away: if it is closing, or both get more alike."""
        return batch >= self.num_batches or self.size(batch) - self.size(to) > 1

    def _has_room(self, batch: int) -> bool:
        return batch < self.num_batches and len(self._members[batch]) < self.max_batch_size
