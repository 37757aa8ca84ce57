"""Learns the costs of steps from results. Pure.

Results bring their own durations and times, so there is no clock here. The wait for drafts is a
draft source's: it begins with its link and ends with it. What steps cost is a model's on a device:
it outlives the link.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.services.coordinator.core.cost_forms import read_forms, write_forms
from minedraft.services.coordinator.core.leg_costs import DraftLeg, VerifyLeg
from minedraft.services.coordinator.core.meanwhile import Meanwhile
from minedraft.services.coordinator.core.model_key import ModelKey
from minedraft.services.coordinator.core.origin import Origin
from minedraft.services.coordinator.core.pair_costs import PairCosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from minedraft.plans import DraftResult, StepTiming
    from minedraft.services.coordinator.core.answers import Answer
    from minedraft.services.coordinator.core.model_key import PairKey
    from minedraft.services.coordinator.core.step import Step
    from minedraft.types import ModelInfo

DRAFT_TIMEOUT_FLOOR_NS = 1 * 10**9
DRAFT_TIMEOUT_CEILING_NS = 10 * 10**9
MAX_MODELS: Final = 8
"""Draft models whose costs are kept."""
_DRAFT_TIMEOUT_FACTOR = 6
"""Times the longest of the last draft steps; generous, because a step without drafts is dear and
a dead drafter is noticed by its link, not by this."""
_NUM_RECENT_DRAFTS = 16


class _Drafted(NamedTuple):
    """A draft step that the table has not learned from: the verifier may still be at work."""

    rows_per_depth: tuple[int, ...]
    num_catch_up_tokens: int
    context: int
    timing: StepTiming


class _Verified(NamedTuple):
    """A verify step that the table has not learned from: the drafter may still be at work."""

    num_tokens: int
    num_rows: int
    context: int
    is_rough: bool
    timing: StepTiming


class SourceCosts:
    """What is known of one draft source.

    Args:
        leg: What its drafts cost.
    """

    def __init__(self, leg: DraftLeg) -> None:
        self.leg = leg
        self.recent_ns: deque[int] = deque(maxlen=_NUM_RECENT_DRAFTS)
        """Durations of the last steps with drafts; a warm-up or a prefill is none."""
        self.last: _Drafted | None = None
        self.sends_scores: bool | None = None
        """Whether its last drafts of which scores were asked had any; None: none were asked."""


_NO_SOURCE = SourceCosts(DraftLeg())
"""What is known without a draft source; it never changes."""


class Costs:
    """See the module docstring.

    A step is learned from when the next one of its worker ends. By then the answers are there that
    say for what share of it the other worker was at work: in rotation a step's drafts end before it
    is verified, and its batch's verify step before it is drafted.

    Args:
        step_timeout_s: What a verifier may take for a step. Drafts are waited for during a quarter
            of that at the most, or it would be left for what a drafter owes.
    """

    def __init__(self, step_timeout_s: float = math.inf) -> None:
        self.verify = VerifyLeg()
        """Of the target that there was last."""
        self._max_draft_timeout_ns = int(min(DRAFT_TIMEOUT_CEILING_NS, step_timeout_s / 4 * 1e9))
        self._target = ModelKey()
        self._drafts: dict[ModelKey, DraftLeg] = {}
        self._sources: dict[int, SourceCosts] = {}
        """By number of the source."""
        self._verifying, self._drafting = Meanwhile(), Meanwhile()
        self._last: _Verified | None = None
        self._seeds: dict[PairKey, PairCosts] = {}

    # -- earlier runs -----------------------------------------------------------------------

    def seed(self, forms: Mapping[str, object]) -> dict[str, str]:
        """Know what earlier runs learned; it is used when its models come up.

        Args:
            forms: What `forms` returned in each, newest first.

        Returns:
            Why others were refused, by name.
        """
        self._seeds, refused = read_forms(forms)
        return refused

    def forms(self) -> dict[str, object]:
        """Return what is known as JSON objects, by names of files."""
        return write_forms(self.pairs())

    def pairs(self) -> dict[PairKey, PairCosts]:
        """Return what is known, by models; nothing while nothing is known of the target."""
        self.settle()
        if not self.verify.table.bins:
            return {}
        drafts = {key: leg for key, leg in self._drafts.items() if leg.first.bins}
        return {
            (self._target, key): PairCosts(self.verify, leg)
            for key, leg in (drafts or {ModelKey(): DraftLeg()}).items()
        }

    # -- who there is -----------------------------------------------------------------------

    def verifier_up(self, model: ModelInfo) -> None:
        """A verifier is there; another target, or the same elsewhere, costs something else."""
        key = ModelKey.of(model)
        if key == self._target:
            return
        self._target, self.verify, self._last = key, VerifyLeg(), None
        for (target, _), known in self._seeds.items():
            if target == key and known.verify.table.bins:
                self.verify = known.verify
                self.verify.origin = Origin.CACHE
                return

    def add_source(self, source: int, model: ModelInfo) -> None:
        """A draft source was linked. What its model's steps cost may be known."""
        key = ModelKey.of(model)
        leg = self._drafts.pop(key, None) or self._seeded(key)
        self._drafts[key] = leg
        if len(self._drafts) > MAX_MODELS:
            del self._drafts[next(iter(self._drafts))]
        self._sources[source] = SourceCosts(leg)

    def drop_source(self, source: int) -> None:
        """It is over. Unknown numbers are fine."""
        self._sources.pop(source, None)

    def of_source(self, source: int) -> SourceCosts:
        """What is known of a draft source; nothing of one that is not linked. Read only."""
        return self._sources.get(source, _NO_SOURCE)

    @property
    def draft_legs(self) -> Iterator[DraftLeg]:
        """Of all sources that are linked."""
        return (each.leg for each in self._sources.values())

    def set_origin(self, old: Origin, new: Origin) -> None:
        """Say where the costs of the target and of linked sources come from, where it was `old`."""
        if self.verify.origin is old:
            self.verify.origin = new
        for leg in self.draft_legs:
            if leg.origin is old:
                leg.origin = new

    # -- learning ---------------------------------------------------------------------------

    def drafted(self, result: DraftResult, step: Step | None) -> None:
        """Learn from a draft step.

        Args:
            result: Of the drafter.
            step: What was planned; None: a warm-up, or the step is over.
        """
        costs = self._sources.get(result.epoch)
        if costs is None:
            return
        # Drafts that were there already say nothing of what drafting costs.
        is_ahead = result.num_ahead_tokens > 0
        if result.num_rows and not is_ahead:
            costs.recent_ns.append(result.timing.total_ns)
        self._learn_draft(costs)
        self._drafting.note(result.timing)
        rows_per_depth: tuple[int, ...] = ()
        if step is not None and step.score:
            rows_per_depth = per_depth(len(row.scores) for row in result.rows)
            if result.num_draft_tokens:
                costs.sends_scores = bool(rows_per_depth)
        if step is not None and not rows_per_depth:
            rows_per_depth = per_depth(step.num_draft_tokens.values())
        if (
            sum(rows_per_depth) == result.num_draft_tokens and not is_ahead
        ):  # else some rows drafted less
            costs.last = _Drafted(
                rows_per_depth,
                result.num_catch_up_tokens,
                step.context if step is not None else 0,
                result.timing,
            )

    def verified(self, step: Step, answer: Answer, timing: StepTiming) -> None:
        """Learn from a verify step."""
        self._learn_verify()
        self._verifying.note(timing)
        num_rows = len(step.num_draft_tokens)
        if step.is_wide:
            return  # on other cores; the shape has a figure of its own
        self._last = _Verified(
            step.num_scheduled_tokens + answer.num_draft_tokens + answer.num_ngram_tokens,
            num_rows,
            step.context,
            step.num_scheduled_tokens > num_rows,
            timing,
        )

    def settle(self) -> None:
        """Learn from the last steps too: nothing that could have overlapped them is left."""
        self._learn_verify()
        for costs in self._sources.values():
            self._learn_draft(costs)

    # -- estimates --------------------------------------------------------------------------

    def verify_ns(
        self, num_tokens: int, num_rows: int, context: int, *, overlapped: float
    ) -> float | None:
        """Estimate a verify step: see `PairCosts.verify_ns`."""
        return self.verify.ns(num_tokens, num_rows, context, overlapped=overlapped)

    def draft_ns(
        self,
        rows_per_depth: Sequence[int],
        num_catch_up_tokens: int,
        context: int,
        *,
        overlapped: float,
        source: int = 0,
    ) -> float | None:
        """Estimate a draft step of a source, by default of the slowest one that is linked.

        See `PairCosts.draft_ns`.
        """
        legs = [self._sources[source]] if source in self._sources else self._sources.values()
        known = [
            ns
            for each in legs
            if (
                ns := each.leg.ns(
                    rows_per_depth, num_catch_up_tokens, context, overlapped=overlapped
                )
            )
            is not None
        ]
        return max(known, default=None)

    def draft_timeout_ns(self, source: int, num_ahead: int = 0) -> int:
        """Longest wait for drafts of this source, from when both plans of a step leave.

        Args:
            source: Number of the source.
            num_ahead: Steps that it drafts before this one: its plans run first in, first out.
        """
        recent_ns = self.of_source(source).recent_ns
        if not recent_ns:
            return self._max_draft_timeout_ns
        timeout_ns = max(
            DRAFT_TIMEOUT_FLOOR_NS, (_DRAFT_TIMEOUT_FACTOR + num_ahead) * max(recent_ns)
        )
        return min(timeout_ns, self._max_draft_timeout_ns)

    def _seeded(self, key: ModelKey) -> DraftLeg:
        known = self._seeds.get((self._target, key))
        if known is None or not known.draft.first.bins:
            return DraftLeg()
        known.draft.origin = Origin.CACHE
        return known.draft

    def _learn_verify(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            self.verify.observe(
                last.num_tokens,
                last.num_rows,
                last.context,
                last.timing.total_ns,
                overlapped=self._drafting.share(last.timing),
                is_rough=last.is_rough,
            )

    def _learn_draft(self, costs: SourceCosts) -> None:
        last, costs.last = costs.last, None
        if last is not None:
            costs.leg.observe(
                last.rows_per_depth,
                last.num_catch_up_tokens,
                last.context,
                last.timing.total_ns,
                overlapped=self._verifying.share(last.timing),
            )


def per_depth(num_draft_tokens: Iterable[int]) -> tuple[int, ...]:
    """Rows that draft a first token, a second one, and so on, of rows with these k."""
    counts = [k for k in num_draft_tokens if k]
    if counts and counts.count(counts[0]) == len(counts):  # nearly always
        return (len(counts),) * counts[0]
    counts.sort()
    return tuple(
        len(counts) - bisect_left(counts, depth) for depth in range(1, max(counts, default=0) + 1)
    )
