"""Holds all draft sources, and assigns one to each batch. Pure.

What happens to one is told in `draft_source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.plans import DraftResult, VerifyResult
    from minedraft.services.coordinator.core.draft_source import DraftSource
    from minedraft.services.coordinator.core.step import Step


class Sources:
    """Sources whose links stand, by id; those that draft in the order of their places."""

    def __init__(self) -> None:
        self._by_id: dict[int, DraftSource] = {}

    def __iter__(self) -> Iterator[DraftSource]:
        yield from tuple(self._by_id.values())

    @property
    def newest(self) -> int:
        """Id of the newest that is in place; 0: none is."""
        return max((source.source_id for source in self if source.is_in_place), default=0)

    @property
    def broken(self) -> tuple[DraftSource, ...]:
        """Those whose links must be formed anew."""
        return tuple(source for source in self._by_id.values() if source.is_broken)

    @property
    def warming(self) -> tuple[DraftSource, ...]:
        """Those that shall take over."""
        return tuple(source for source in self._by_id.values() if source.is_warming)

    @property
    def able(self) -> tuple[DraftSource, ...]:
        """Those that batches are shared among, in the order of their places."""
        return tuple(source for source in self._by_id.values() if source.is_able)

    def serve(self, source: DraftSource) -> None:
        """A source whose link stands drafts from now on."""
        source.serve()
        self._by_id[source.source_id] = source

    def warm_up(self, source: DraftSource) -> None:
        """A source whose link stands shall take over once it has caught up."""
        source.warm_up()
        self._by_id[source.source_id] = source

    def cut_over(self, old: DraftSource | None, new: DraftSource) -> None:
        """The warm source `new` takes the place of `old`, or serves beside the others.

        Raises:
            StateError: `new` is not warm.
        """
        new.take_over()
        places = {i: each for i, each in self._by_id.items() if each is not new}
        if old is not None and old.is_in_place:
            old.replaced()
            places = {
                each.source_id: each
                for known in places.values()
                for each in ((new, old) if known is old else (known,))
            }
        else:
            places[new.source_id] = new
        self._by_id = places

    def drop(self, source: DraftSource) -> None:
        """A source is over. Once more, or before its link stands, is fine."""
        source.end()
        self._by_id.pop(source.source_id, None)

    def of_batch(self, batch: int) -> DraftSource | None:
        """The source that drafts for a batch; None: there is none."""
        able = self.able
        return able[batch % len(able)] if able else None

    def answered(self, result: DraftResult) -> bool:
        """Take a source's answer to a plan; False: it was that of a step."""
        source = self._by_id.get(result.epoch)
        return source is not None and source.answered(result)

    def verified(self, step: Step, result: VerifyResult) -> None:
        """A step is verified: note whether its source's drafts had come."""
        source = self._by_id.get(step.source)
        if source is not None:
            source.verified(
                step.step_id,
                has_answered=step.is_drafted,
                began_early=step.began_early,
                num_rows=sum(k > 0 for k in step.num_draft_tokens.values()),
                num_missing=result.num_stale_drafts,
            )
