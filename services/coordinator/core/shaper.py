"""Chooses the shape that gives most tokens per second, from measured costs. Pure.

Candidates are one batch, two, up to one more than there are drafters, and plain decoding (k = 0),
on the drafter's cores too where the verifier may have them (`is_wide`).
The mode bounds them: its slots are the most requests at once, its k is the k. A figure is the price
of `shapes`, times what steps of that shape took over it lately: messages between processes are in
no table of costs. Where a figure is unknown nothing is decided.

A switch needs a gain of 5 %, and 8 steps since the last one. What does not run is measured again
now and then: plain decoding drafts in one step of 128, and what steps of another shape took over
their price fades.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.plans import MAX_BATCHES, MAX_ROWS
from minedraft.services.coordinator.core.shapes import Shape, predict_ns, tokens_per_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minedraft.plans import StepTiming
    from minedraft.services.coordinator.core.answers import Answer
    from minedraft.services.coordinator.core.shapes import Load, StepCosts
    from minedraft.services.coordinator.core.step import Step
    from minedraft.types import Mode

AUTO: Final = "auto"
GAIN: Final = 1.05
"""Least gain of a switch."""
MIN_STEPS: Final = 8
"""Least steps between two switches."""
CATCH_UP_STEPS: Final = 16
"""Steps of plain decoding after which drafters are fed what they lack."""
PROBE_STEPS: Final = 128
"""Steps of plain decoding after which one drafts."""
_LOOK_STEPS = 4
"""Steps between two looks at the same number of requests."""
_MIN_ROWS, _MEMORY_ROWS = 64, 256
"""Verified rows with drafts before their acceptance counts, and that are remembered."""
_WEIGHT, _FADE = 0.1, 0.999
"""Least weight of a step in the mean of its shape; of the means of the others, per step."""
_WIDE = 0.6
"""What a wide step takes over its price until one was seen: little enough to have it tried."""
_MOST_OVER = 3.0
"""Most that one step counts for over its price: a stall is none of the shape's."""


@dataclass(slots=True)
class _Over:
    """What steps of a shape take over their price."""

    prior: float
    mean: float
    count: int = 1
    """The prior counts as one step."""

    def observe(self, over: float) -> None:
        """Learn from a step."""
        self.count += 1
        self.mean += max(_WEIGHT, 1 / self.count) * (over - self.mean)

    def fade(self) -> None:
        """A step of another shape."""
        self.mean = self.prior + (self.mean - self.prior) * _FADE


@dataclass(frozen=True, slots=True)
class _View:
    """What there was to see at the last look."""

    load: Load
    num_drafters: int
    shape: Shape
    """What the current shape amounted to: a batch without a member is none, nor are drafts without
    a drafter."""
    price_ns: float | None
    """Of its steps."""


class Shaper:
    """See the module docstring.

    Args:
        mode: Bounds, and where it begins.
        costs: What steps cost.
        max_rows: Most requests that one batch may have.
    """

    def __init__(self, mode: Mode, costs: StepCosts, *, max_rows: int = MAX_ROWS) -> None:
        self.mode = mode
        self.shape = Shape(mode.num_batches, mode.num_draft_tokens)
        self.figures: dict[Shape, float | None] = {}
        """Tokens per second by candidate, as of the last look; None: unknown."""
        self.num_switches = 0
        self._costs = costs
        self._max_rows = max_rows
        self._accepted = self._rows = 0.0
        """Sums over verified rows with drafts; older ones fade."""
        self._over: dict[Shape, _Over] = {}
        self._num_steps = self._last_look = 0
        self._last_switch = -MIN_STEPS
        self._num_plain = self._last_catch_up = 0
        """Steps planned since plain decoding began, and how many they were at the last catch-up."""
        self._view: _View | None = None

    def set_mode(self, mode: Mode) -> None:
        """Begin again with another mode."""
        if mode.num_draft_tokens != self.mode.num_draft_tokens:
            self._accepted = self._rows = 0.0
            self._over.clear()
        self.mode, self.figures = mode, {}
        self._take(Shape(mode.num_batches, mode.num_draft_tokens))
        self._last_switch -= MIN_STEPS  # what is known already counts at once

    def switch(self, shape: Shape) -> None:
        """Take another shape."""
        self.num_switches += 1
        self._take(shape)

    @property
    def max_batch_size(self) -> int:
        """Most members of one batch."""
        if self.shape.num_batches == self.mode.num_batches:
            return self.mode.max_batch_size
        return -(-self.mode.num_slots // self.shape.num_batches)

    @property
    def num_accepted(self) -> float | None:
        """Drafts that the target keeps per row that drafts; None: too few were seen."""
        return self._accepted / self._rows if self._rows >= _MIN_ROWS else None

    # -- choosing ---------------------------------------------------------------------------

    def look(
        self,
        num_requests: int,
        num_drafters: int,
        load: Callable[[], Load],
        *,
        has_spare: bool = False,
    ) -> bool:
        """Price the candidates, and take another shape if it is worth it.

        Args:
            num_requests: That run.
            num_drafters: That draft.
            load: Describes the requests.
            has_spare: Whether the verifier may compute on a drafter's cores.

        Returns:
            Whether the shape is another one now.
        """
        if self.mode.shape != AUTO or not num_requests:
            return False
        last = self._view
        is_new = last is None or (last.load.num_requests, last.num_drafters) != (
            num_requests,
            num_drafters,
        )
        if not is_new and self._num_steps - self._last_look < _LOOK_STEPS:
            return False
        self._last_look = self._num_steps
        view = self._view = self._price(load(), num_drafters, has_spare=has_spare)
        if self._num_steps - self._last_switch < MIN_STEPS:
            return False
        shape = self._best(view)
        if shape is None or shape == self.shape:
            return False
        self.switch(shape)
        return True

    def _price(self, load: Load, num_drafters: int, *, has_spare: bool) -> _View:
        k = self.shape.num_draft_tokens if num_drafters else 0
        is_wide = self.shape.is_wide and has_spare
        current = Shape(min(self.shape.num_batches, load.num_requests), k, is_wide)
        candidates = self._candidates(load, num_drafters, has_spare=has_spare)
        prices = {
            shape: predict_ns(shape, load, num_drafters, self._costs)
            for shape in dict.fromkeys((*candidates, current))
        }
        self.figures = {
            shape: self._figure(shape, load, price_ns) for shape, price_ns in prices.items()
        }
        return _View(load, num_drafters, current, prices[current])

    def _candidates(self, load: Load, num_drafters: int, *, has_spare: bool) -> Iterator[Shape]:
        """Shapes to choose from, plain decoding first."""
        fewest = -(-self.mode.num_slots // self._max_rows)
        yield Shape(fewest, 0)
        if has_spare:
            yield Shape(fewest, 0, is_wide=True)
        k = self.mode.num_draft_tokens
        if k and num_drafters:
            most = min(num_drafters + 1, MAX_BATCHES, load.num_requests)
            for num_batches in range(fewest, max(most, fewest) + 1):
                yield Shape(num_batches, k)

    def _figure(self, shape: Shape, load: Load, price_ns: float | None) -> float | None:
        num_accepted = self.num_accepted if shape.num_draft_tokens else 0.0
        if price_ns is None or num_accepted is None:
            return None
        num_tokens = tokens_per_step(shape, load, num_accepted)
        return 1e9 * num_tokens / (price_ns * self._over_of(shape).mean)

    def _over_of(self, shape: Shape) -> _Over:
        if shape not in self._over:
            prior = _WIDE if shape.is_wide else 1.0
            self._over[shape] = _Over(prior, prior)
        return self._over[shape]

    def _best(self, view: _View) -> Shape | None:
        """The shape to go on with; None: nothing can be said."""
        drafts_somewhere = any(shape.num_draft_tokens for shape in self.figures)
        if drafts_somewhere and self.num_accepted is None:
            # It gets known where drafts are made.
            known_there = Shape(self.mode.num_batches, self.mode.num_draft_tokens)
            return None if self.shape.num_draft_tokens else known_there
        figures = {shape: figure for shape, figure in self.figures.items() if figure is not None}
        if len(figures) < len(self.figures):
            return None
        best = max(figures, key=lambda shape: figures[shape])
        return best if figures[best] >= GAIN * figures[view.shape] else None

    def _take(self, shape: Shape) -> None:
        self.shape = shape
        self._last_switch = self._num_steps
        self._num_plain = self._last_catch_up = 0
        self._view = None

    # -- planning ---------------------------------------------------------------------------

    def next_k(self) -> int:
        """Draft tokens of the step that is planned now."""
        k = self.shape.num_draft_tokens
        if k or self.mode.shape != AUTO:
            return k
        self._num_plain += 1
        return 0 if self._num_plain % PROBE_STEPS else self.mode.num_draft_tokens

    def is_catch_up_due(self) -> bool:
        """Whether drafters are to be fed what they lack now: in plain decoding no step does it."""
        if self._num_plain - self._last_catch_up < CATCH_UP_STEPS:
            return False
        self._last_catch_up = self._num_plain
        return self.mode.num_draft_tokens > 0

    # -- learning ---------------------------------------------------------------------------

    def observe(self, step: Step, answer: Answer, timing: StepTiming) -> None:
        """Learn from a verify step."""
        self._num_steps += 1
        # With scores the verifier may choose none of a row's drafts: it drafted all the same.
        num_rows = answer.num_offered if step.score else answer.num_drafts
        if num_rows:
            keep = max(1 - num_rows / _MEMORY_ROWS, 0.0)
            self._accepted = self._accepted * keep + answer.num_accepted_tokens
            self._rows = self._rows * keep + num_rows
        view = self._view
        feeds_prompt = step.num_scheduled_tokens > len(step.num_draft_tokens)
        if (
            view is None
            or view.price_ns is None
            or timing.total_ns <= 0  # not measured
            or feeds_prompt
            or answer.num_ngram_tokens  # the price is that of a step without them
            or bool(step.source) != bool(view.shape.num_draft_tokens)
            or step.is_wide != view.shape.is_wide
        ):
            return
        took_ns = timing.idle_ns + timing.total_ns
        over = min(max(took_ns / view.price_ns, 1 / _MOST_OVER), _MOST_OVER)
        current = self._over_of(view.shape)
        for each in self._over.values():
            if each is not current:
                each.fade()
        current.observe(over)
