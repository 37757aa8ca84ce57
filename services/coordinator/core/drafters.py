"""Which drafters there are, who drafts for which batch, who is being warmed up. Pure.

A drafter is named by the epoch of its link. Batch b is drafted for by the (b mod n)-th of n serving
drafters, so with as many batches as drafters each has one; when one is lost its batches move. A
warming drafter gets plans that only feed its KV cache until it has caught up; then it takes the
place of another one (hot swap).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minedraft.plans import DraftResult
    from minedraft.types import ModelInfo


@dataclass(slots=True)
class Warming:
    """A drafter that is being brought up to date."""

    info: ModelInfo
    step_id: int = 0
    """Plan in flight; 0: none."""
    is_behind: bool = False
    """Its last plan did not suffice: some rows need more of the same."""
    is_warm: bool = False


class Drafters:
    """See the module docstring."""

    def __init__(self) -> None:
        self.warming: dict[int, Warming] = {}
        """By epoch."""
        self._serving: dict[int, ModelInfo] = {}
        self._suspects: dict[int, int] = {}
        """By epoch, the number of the suspicion."""
        self._num_suspicions = 0

    @property
    def epochs(self) -> tuple[int, ...]:
        """All that are linked, serving ones first."""
        return (*self._serving, *self.warming)

    @property
    def newest(self) -> int:
        """Newest epoch that serves; 0: none."""
        return max(self._serving, default=0)

    def serve(self, info: ModelInfo, epoch: int) -> None:
        """A drafter drafts from now on."""
        self._serving[epoch] = info

    def warm_up(self, info: ModelInfo, epoch: int) -> None:
        """A drafter shall take over once it has caught up."""
        self.warming[epoch] = Warming(info)

    def drop(self, epoch: int) -> None:
        """A drafter is gone. Unknown epochs are fine."""
        self._suspects.pop(epoch, None)
        self._serving.pop(epoch, None)
        self.warming.pop(epoch, None)

    def cut_over(self, old: int, new: int) -> None:
        """The warming drafter `new` serves in the place of `old`, or beside the others.

        Raises:
            KeyError: `new` is not warming.
        """
        info = self.warming.pop(new).info
        places = [(new, info) if epoch == old else (epoch, i) for epoch, i in self._serving.items()]
        self._serving = dict(places) | {new: info}

    def of_batch(self, batch: int) -> tuple[int, ModelInfo | None]:
        """Epoch and model of the drafter of a batch; (0, None): there is none."""
        able = [item for item in self._serving.items() if item[0] not in self._suspects]
        return able[batch % len(able)] if able else (0, None)

    def suspect(self, epoch: int) -> None:
        """Its drafts did not come in time: nobody waits for it again until it is heard of."""
        if epoch in self._serving:
            self._num_suspicions += 1
            self._suspects.setdefault(epoch, self._num_suspicions)

    def owed(self, epoch: int) -> int:
        """What a drafter is behind with: drafts that were waited for in vain, or a warm-up step.

        Returns:
            Another number each time; 0: nothing.
        """
        warming = self.warming.get(epoch)
        return warming.step_id if warming is not None else self._suspects.get(epoch, 0)

    def is_warm(self, epoch: int) -> bool:
        """Whether a warming drafter has caught up."""
        warming = self.warming.get(epoch)
        return warming is not None and warming.is_warm

    def took(self, result: DraftResult) -> bool:
        """Take the answer to a plan; False: it was no warm-up plan."""
        self._suspects.pop(result.epoch, None)
        warming = self.warming.get(result.epoch)
        if warming is None or warming.step_id != result.step_id:
            return False
        warming.step_id = 0
        warming.is_behind = result.num_behind > 0
        warming.is_warm = not warming.is_behind
        return True
