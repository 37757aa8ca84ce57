"""Bounds what a step feeds of prompts, so that sequences that decode hardly notice it. Pure.

A step with prompt tokens may take `stall` times as long as one without. Costs say how many tokens
that is, of the verifier and of the drafter: both feed prompts beside their other work. In rotation
the shorter leg is hidden beneath the longer one, so it may take as long as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.services.coordinator.core.costs import per_depth
from minedraft.services.coordinator.core.request import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from minedraft.services.coordinator.core.costs import Costs
    from minedraft.services.coordinator.core.step import Step

DEFAULT_STALL: Final = 1.5
"""Longest step with prompt tokens, over one without."""
FIRST_CHUNK_TOKENS: Final = 64
"""Most prompt tokens beside sequences that decode while nothing is known of costs."""
_KEPT_STEPS: Final = 8
"""Steps that a budget is kept for: costs change slowly, and to look them up is not free."""
_MAX_KNOWN: Final = 64
_PRECISION: Final = 16
"""A budget is found to a sixteenth: costs are not known better."""
MIN_CHUNK_TOKENS: Final = 4
"""A prompt gets on by so many tokens per step, whatever they cost."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the sequences of a batch that decode cost in one step."""

    num_draft_tokens: Sequence[int] = ()
    """k of each."""
    context: int = 0
    """Committed tokens of all together."""

    @property
    def num_rows(self) -> int:
        """Sequences that decode."""
        return len(self.num_draft_tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens that the verifier feeds: the last committed ones and drafts."""
        return self.num_rows + sum(self.num_draft_tokens)

    @property
    def num_catch_up_tokens(self) -> int:
        """Tokens that the drafter feeds first: the last one and, after a bonus token, one more."""
        return 2 * self.num_rows


def load_of(step: Step) -> Load:
    """The load of a step in flight, without what it feeds of prompts."""
    ks = [
        step.num_draft_tokens[row_id]
        for row_id, request in step.requests.items()
        if request.phase is not Phase.PREFILLING
    ]
    return Load(ks, step.context if ks else 0)


class PrefillBudget:
    """See the module docstring.

    Args:
        costs: What is known of steps.
        stall: Times that a step may take as long because of prompts; >= 1.
    """

    def __init__(self, costs: Costs, stall: float) -> None:
        self._costs = costs
        self._stall = stall
        self.step = 0
        """Steps that were scheduled; its owner counts them."""
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}
        """By about what was asked: the step up to which a budget holds, and the budget."""

    def verify_tokens(self, own: Load, others: Iterable[Load], *, source: int, most: int) -> int:
        """Return the most prompt tokens that the verifier feeds in a batch's next step.

        Args:
            own: Of the batch.
            others: Of batches in flight: they wait for this step too.
            source: Draft source of the batch; 0: there is none.
            most: Most, whatever they cost.
        """
        rival = _heaviest(others)
        if not own.num_rows and not rival.num_rows:
            return most
        key = (0, own.num_rows, rival.num_rows, source, most)
        return self._kept(key) or self._keep(key, self._verify_tokens(own, rival, source, most))

    def draft_tokens(self, own: Load, others: Iterable[Load], *, source: int, most: int) -> int:
        """Return the most prompt tokens that a drafter feeds in a batch's next step.

        Args:
            own: Of the batch.
            others: Of batches in flight whose steps wait for drafts of the same source.
            source: The draft source.
            most: Most, whatever they cost.
        """
        rival = _heaviest(others)
        if not own.num_rows and not rival.num_rows:
            return most
        key = (1, own.num_rows, rival.num_rows, source, most)
        return self._kept(key) or self._keep(key, self._draft_tokens(own, rival, source, most))

    def _kept(self, key: tuple[int, ...]) -> int:
        """Return a budget that was found some steps ago; 0: there is none, or it is too old."""
        until, num_tokens = self._known.get(key, (0, 0))
        return num_tokens if self.step < until else 0

    def _keep(self, key: tuple[int, ...], num_tokens: int | None) -> int:
        """Keep a budget for some steps; None: nothing is known of costs."""
        if num_tokens is None:
            return min(key[-1], FIRST_CHUNK_TOKENS)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[key] = (self.step + _KEPT_STEPS, num_tokens)
        return num_tokens

    def _verify_tokens(self, own: Load, rival: Load, source: int, most: int) -> int | None:
        limit_ns, _, overlapped = self._limits(own, rival, source)
        if limit_ns is None:
            return None
        return self._largest(
            lambda tokens: self._costs.verify_ns(
                own.num_tokens + tokens,
                own.num_rows + 1,
                own.context + tokens,
                overlapped=overlapped,
            ),
            limit_ns,
            most,
        )

    def _draft_tokens(self, own: Load, rival: Load, source: int, most: int) -> int | None:
        _, limit_ns, overlapped = self._limits(own, rival, source)
        if limit_ns is None:
            return None
        depths = per_depth(own.num_draft_tokens)
        return self._largest(
            lambda tokens: self._costs.draft_ns(
                depths,
                own.num_catch_up_tokens + tokens,
                own.context + tokens,
                overlapped=overlapped,
                source=source,
            ),
            limit_ns,
            most,
        )

    def _limits(
        self, own: Load, rival: Load, source: int
    ) -> tuple[float | None, float | None, bool]:
        """Return how long both legs may take with a prompt in ns, and whether they overlap."""
        load = max(own, rival, key=lambda each: each.num_tokens)
        depths = per_depth(load.num_draft_tokens) if source else ()
        overlapped = rival.num_rows > 0 and bool(depths)
        verify_ns = self._costs.verify_ns(
            load.num_tokens, load.num_rows, load.context, overlapped=overlapped
        )
        draft_ns = self._costs.draft_ns(
            depths, load.num_catch_up_tokens, load.context, overlapped=overlapped, source=source
        )
        most_verify_ns = None if verify_ns is None else self._stall * verify_ns
        most_draft_ns = None if draft_ns is None else self._stall * draft_ns
        if overlapped and verify_ns is not None and draft_ns is not None:
            # What is hidden beneath the other leg costs no step anything.
            most_verify_ns = max(self._stall * verify_ns, draft_ns)
            most_draft_ns = max(self._stall * draft_ns, verify_ns)
        return most_verify_ns, most_draft_ns, overlapped

    @staticmethod
    def _largest(ns: Callable[[int], float | None], limit_ns: float, most: int) -> int:
        """Return the most tokens within the limit. Costs never fall with their number."""

        def fits(num_tokens: int) -> bool:
            cost_ns = ns(num_tokens)
            return cost_ns is None or cost_ns <= limit_ns

        if fits(most):
            return most
        low, high = min(MIN_CHUNK_TOKENS, most), most
        while high - low > max(low // _PRECISION, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def _heaviest(loads: Iterable[Load]) -> Load:
    return max(loads, key=lambda load: load.num_tokens, default=_NO_LOAD)


_NO_LOAD: Final = Load()
