"""Remembers what became of one request's drafts: its effect, and its acceptance by position. Pure.

Outcomes come with the labels of its drafter, one or more steps after the drafts themselves: until
then their scores wait here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.plans import MAX_DRAFT_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_OFFSET: Final = 4.0
"""Magnitude of the effect of a request, in logits."""
MAX_WAITING: Final = 2 * MAX_DRAFT_TOKENS
"""Drafts of as many steps wait for their outcome, as at a drafter; older ones are forgotten."""
MAX_UNLABELLED: Final = 16
"""Verified steps after which outcomes are taken for such that come no more."""
_PRIOR_INFORMATION: Final = 1.0
"""Of no effect: one over the variance of the effects of requests."""
_MOST_INFORMATION: Final = 6.0
"""So many labels of most information move an effect by little; more are never counted."""
_DECAY: Final = 0.9
"""Decay of older outcomes of a position, per outcome."""
_PRIOR_WEIGHT: Final = 4.0
"""Outcomes that the prior of a position counts for."""
_LEAST, _MOST = 0.005, 0.995


class Waiting(NamedTuple):
    """Drafts of one step without an outcome."""

    source: int
    """Of the drafts; its link's epoch."""
    base_len: int
    score: int
    """What the scores are: a `plans.Score`."""
    scores: Sequence[float]
    num_judged: int = 0
    """Leading drafts whose outcome has come."""


@dataclass(slots=True)
class DraftHistory:
    """See the module docstring."""

    offset: float = 0.0
    """Effect of the request on the logit of each draft: a running mean, shrunk to 0."""
    num_unlabelled: int = MAX_UNLABELLED
    """Verified steps with drafts since an outcome came; the most: none ever did."""
    _information: float = _PRIOR_INFORMATION
    _kept: list[float] = field(default_factory=list)
    _refused: list[float] = field(default_factory=list)
    """By position; older ones fade."""
    _waiting: dict[int, Waiting] = field(default_factory=dict)
    """By committed length, oldest first."""

    @property
    def is_labelled(self) -> bool:
        """Whether outcomes come: those of the verifier are not needed."""
        return self.num_unlabelled < MAX_UNLABELLED

    def last_scores(self, source: int, score: int) -> Sequence[float]:
        """Scores of the last drafts of a source; empty: they have their outcome, or none came."""
        last = next(reversed(self._waiting.values()), None)
        if last is None or (last.source, last.score) != (source, score):
            return ()
        return last.scores

    def wait(self, drafts: Waiting) -> None:
        """Remember drafts until their outcome comes."""
        waiting = self._waiting
        waiting.pop(drafts.base_len, None)
        waiting[drafts.base_len] = drafts
        if len(waiting) > MAX_WAITING:
            del waiting[next(iter(waiting))]

    def find(self, source: int, base_len: int) -> Waiting | None:
        """Return the drafts that were made there; all older ones wait no more."""
        waiting = self._waiting
        found = waiting.get(base_len)
        if found is None or found.source != source:
            return None
        for older in list(waiting):
            if older == base_len:
                break
            del waiting[older]
        return found

    def judged(self, drafts: Waiting, num_judged: int, *, is_over: bool) -> None:
        """Note how many of the drafts found have an outcome, and whether more will come."""
        if is_over:
            del self._waiting[drafts.base_len]
        else:
            self._waiting[drafts.base_len] = drafts._replace(num_judged=num_judged)

    def observe(self, num_matched: int, labels: range) -> None:
        """Learn what became of drafts.

        Args:
            num_matched: Leading drafts of the step that stood.
            labels: Their positions that are judged now, one after the other.
        """
        self.num_unlabelled = 0
        kept, refused = self._kept, self._refused
        if labels.stop > len(kept):
            kept.extend([0.0] * (labels.stop - len(kept)))
            refused.extend([0.0] * (labels.stop - len(refused)))
        for position in labels:
            stood = position < num_matched
            kept[position] = kept[position] * _DECAY + stood
            refused[position] = refused[position] * _DECAY + (not stood)

    def move(self, residual: float, information: float) -> None:
        """Move the effect.

        Args:
            residual: Sum over labels of what stood minus what was said.
            information: Of these labels.
        """
        self._information = min(self._information + information, _MOST_INFORMATION)
        moved = self.offset + residual / max(self._information, information)
        self.offset = min(max(moved, -MAX_OFFSET), MAX_OFFSET)

    def forecast(
        self, own: float, rates: Sequence[float], mean: float, num_positions: int
    ) -> list[float]:
        """Say how likely drafts stand that are not made yet.

        Args:
            own: Probability that a draft of the request stands, given those before it; 0..1.
            rates: By position, of its draft source; the last one goes on. Not empty.
            mean: Of them; more than 0, less than 1.
            num_positions: Drafts.

        Returns:
            Of each, the probability that it and all before it stand.
        """
        own = min(max(own, _LEAST), _MOST)
        # The request's odds over those of others hold at every position.
        ratio = own * (1.0 - mean) / ((1.0 - own) * mean)
        last, num_seen = len(rates) - 1, len(self._kept) if self.is_labelled else 0
        survival, found = 1.0, []
        lowest = 1.0
        for position in range(num_positions):
            # Deep positions are those of requests that are often right: what rises there is theirs.
            rate = lowest = min(rates[min(last, position)], lowest)
            odds = ratio * rate
            rate = odds / (odds + 1.0 - rate)
            if position < num_seen:
                kept = self._kept[position]
                num = kept + self._refused[position] + _PRIOR_WEIGHT
                rate = (kept + _PRIOR_WEIGHT * rate) / num
            survival *= rate
            found.append(survival)
        return found


NO_HISTORY: Final = DraftHistory()
"""Of a request without labels; it never changes."""
