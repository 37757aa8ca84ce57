"""Assignment rules by name: ours, and MineDraft's own for comparison. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.services.coordinator.core.batch_manager import BatchManager

if TYPE_CHECKING:
    from collections.abc import Mapping


class PaperBatches(BatchManager):
    """MineDraft's rules as its plugin has them, for one batch or two.

    * The first fill alternates: batch 0 if `balance >= 0`, else batch 1.
    * Later requests join the batch that was verified last, whatever the sizes.
    * If one batch is empty the other one runs alone. The plugin's flag goes on to change with each
      step: a request joins the empty batch or the other one, as the flag happens to be.
    * Only arrivals repair an imbalance: no member moves, but out of a closing batch.
    """

    def __init__(
        self, num_batches: int, max_batch_size: int, *, num_slots: int | None = None
    ) -> None:
        self._flag = 0
        """The batch that the next request joins while one is empty."""
        super().__init__(num_batches, max_batch_size, num_slots=num_slots)

    def choose(self, drafting: int) -> int | None:
        """As `BatchManager.choose`; a request may join a batch with a step in flight."""
        if self.started and self.num_batches > 1 and self._is_one_empty():
            drafting = self._flag
        return super().choose(drafting)

    def start(self, batch: int) -> None:
        """As `BatchManager.start`; the flag changes."""
        super().start(batch)
        self._flag = 1 - (self._flag if self._is_one_empty() else batch)

    def _gives(self, batch: int, to: int) -> bool:  # noqa: ARG002
        return batch >= self.num_batches

    def _is_one_empty(self) -> bool:
        return not all(self._members[: self.num_batches])


RULES: Final[Mapping[str, type[BatchManager]]] = MappingProxyType(
    {"balanced": BatchManager, "paper": PaperBatches}
)
"""By name: `types.ASSIGNMENTS`."""
