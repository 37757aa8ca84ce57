"""Says how likely drafts stand, before they are made and after, from what became of others. Pure.

A drafter reports the scores of its drafts, and when the tokens there are committed, which of them
stood (their labels), verified or not. From both a `Calibration` learns its curves; a request has an
effect of its own, and a history from which its next drafts are forecast. Where no labels come,
because no scores are asked for or the drafter has none, the verifier's answers take their place:
they say nothing of drafts that were not verified.

Labels and scores are a worker's word: they move these estimates, within bounds, and no output.
What is known of a pair of models outlives its links and, as JSON objects, the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.admin import DraftEstimate
from minedraft.errors import ProtocolError
from minedraft.plans import Score
from minedraft.selection import NO_CURVES, temperature_class
from minedraft.services.coordinator.core.acceptance import UNKNOWN, Acceptance
from minedraft.services.coordinator.core.calibration import SIGNS, Calibration
from minedraft.services.coordinator.core.draft_history import (
    NO_HISTORY,
    DraftHistory,
    Waiting,
)
from minedraft.services.coordinator.core.estimate_forms import read_forms, write_forms
from minedraft.services.coordinator.core.model_key import ModelKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from minedraft.plans import DraftResult, DraftRowResult
    from minedraft.selection import Curves
    from minedraft.services.coordinator.core.answers import Answer
    from minedraft.services.coordinator.core.estimate_forms import CurveKey
    from minedraft.services.coordinator.core.request import Request
    from minedraft.services.coordinator.core.step import Step
    from minedraft.types import ModelInfo

MAX_KNOWN: Final = 16
"""Pairs of models and scores whose curves are kept."""
MAX_UNLABELLED: Final = 64
"""Verified steps after which labels of a source are taken for such that come no more."""
_LEAST, _MOST = 0.005, 0.995
GUESSES: Final = {score: Calibration(score).curves for score in SIGNS}
"""Curves before the first label."""


class _Source:
    """A linked draft source."""

    def __init__(self, model: ModelKey) -> None:
        self.model = model
        self.verified = Acceptance()
        """Of its drafts that the verifier looked at."""
        self.score = Score.NONE
        """That it was asked for last."""
        self.num_unlabelled = 0
        """Steps with its drafts that were verified since a label came."""


class Estimator:
    """See the module docstring."""

    def __init__(self) -> None:
        self._target = ModelKey()
        self._sources: dict[int, _Source] = {}
        self._known: dict[CurveKey, Calibration] = {}
        """The newest last."""

    # -- earlier runs -----------------------------------------------------------------------

    def seed(self, forms: Mapping[str, object]) -> dict[str, str]:
        """Know what earlier runs learned.

        Args:
            forms: What `forms` returned in each, newest first.

        Returns:
            Why others were refused, by name.
        """
        known, refused = read_forms(forms)
        self._known = dict(reversed([*known.items()][:MAX_KNOWN]))
        return refused

    def forms(self) -> dict[str, object]:
        """Return what is known as JSON objects, by names of files."""
        return write_forms({key: known for key, known in self._known.items() if known.num_labels})

    # -- who there is -----------------------------------------------------------------------

    def verifier_up(self, model: ModelInfo) -> None:
        """A verifier is there."""
        self._target = _key(model)

    def add_source(self, source: int, model: ModelInfo) -> None:
        """A draft source was linked. Curves of its model may be known."""
        linked = self._sources[source] = _Source(_key(model))
        for score in SIGNS:
            key = self._of(linked, score)
            if key in self._known:
                self._known[key] = self._known.pop(key)  # as if it was new

    def drop_source(self, source: int) -> None:
        """It is over. Unknown numbers are fine."""
        self._sources.pop(source, None)

    # -- learning ---------------------------------------------------------------------------

    def drafted(self, result: DraftResult, step: Step | None, live: Iterable[Request]) -> None:
        """Learn from what a drafter says of rows: outcomes of earlier drafts, and new scores.

        Args:
            result: Of the drafter.
            step: What was planned; None: the step is over, or was none of requests.
            live: Requests, if there is no step.

        Raises:
            ProtocolError: more scores than drafts were planned, or more labels than drafts made.
        """
        source = self._sources.get(result.epoch)
        if source is None:
            return
        score = step.score if step is not None else Score.NONE
        if score:
            source.score = score
        elif not any(row.judged_len for row in result.rows):
            return
        requests = step.requests if step is not None else {r.row_id: r for r in live if r.row_id}
        for row in result.rows:
            request = requests.get(row.row_id)
            if request is None:
                continue
            if row.judged_len:
                self._judge(source, request, row, result.epoch)
            if score and row.scores and step is not None:
                num_planned = step.num_draft_tokens[row.row_id]
                if len(row.scores) > num_planned or row.base_len != request.num_tokens:
                    raise ProtocolError(
                        f"row {row.row_id}: {len(row.scores)} scores from {row.base_len} on, but "
                        f"{num_planned} drafts were planned from {request.num_tokens} on"
                    )
                history = request.history
                if history is None:
                    history = request.history = DraftHistory()
                history.wait(Waiting(result.epoch, row.base_len, score, row.scores))

    def verified(self, source: int, answer: Answer) -> None:
        """Learn from a verifier's answer: drafts that it looked at."""
        known = self._sources.get(source)
        if known is not None and answer.num_drafts:
            known.num_unlabelled += 1
            known.verified.observe(answer.num_accepted_tokens, answer.num_refused_tokens)

    # -- estimates --------------------------------------------------------------------------

    def curves(self, epoch: int, score: Score = Score.MARGIN) -> Curves:
        """Curves for scores of a draft source; guesses while no labels have come."""
        source = self._sources.get(epoch)
        known = self._known.get(self._of(source, score)) if source is not None else None
        return known.curves if known is not None else GUESSES.get(score, NO_CURVES)

    def offset(self, request: Request) -> float:
        """Effect of a request on each of its drafts, in logits; 0 while nothing is known."""
        history = request.history
        return history.offset if history is not None else 0.0

    def forecast(self, request: Request, epoch: int, num_positions: int) -> list[float]:
        """Say how likely the next drafts of a request stand, before they are made.

        Args:
            request: It.
            epoch: The draft source.
            num_positions: Drafts.

        Returns:
            Of each, the probability that it and all before it stand; 0..1, never rising.
        """
        group = temperature_class(request.params.temperature)
        rates, _ = self._rates(epoch, group)
        # Of first drafts every request makes as many; the mean is that of those that draft long.
        mean = min(max(rates[0], _LEAST), _MOST)
        history, own = request.history or NO_HISTORY, request.acceptance.mean(mean)
        return history.forecast(own, rates, mean, num_positions)

    def mean(self, epoch: int) -> float:
        """Probability that the target keeps a draft of a source, given that it kept those before.

        0..1; of labels if there are any, else of drafts that were verified.
        """
        source = self._sources.get(epoch)
        if source is None:
            return UNKNOWN
        known = self._labelled(source)
        mean = known.mean() if known is not None else None
        return source.verified.mean() if mean is None else mean

    def status(self) -> tuple[DraftEstimate, ...]:
        """What is known of each linked source of which labels came, for an operator."""
        return tuple(
            DraftEstimate(epoch, known.num_labels, known.error, known.by_position)
            for epoch, source in self._sources.items()
            if (known := self._labelled(source)) is not None
        )

    def _judge(self, source: _Source, request: Request, row: DraftRowResult, epoch: int) -> None:
        """Learn from the labels of one row; labels of drafts without scores are ignored."""
        history = request.history
        drafts = history.find(epoch, row.judged_len) if history is not None else None
        if history is None or drafts is None:
            return
        num_drafts = len(drafts.scores)
        if row.num_resolved > num_drafts:
            raise ProtocolError(
                f"row {row.row_id}: {row.num_resolved} of the drafts from {row.judged_len} on are "
                f"judged, but it had {num_drafts}"
            )
        labels = range(drafts.num_judged, row.num_resolved)
        if labels:
            source.num_unlabelled = 0
            group = temperature_class(request.params.temperature)
            known = self._calibration(source, Score(drafts.score))
            history.move(
                *known.observe(group, drafts.scores, row.num_matched, labels, history.offset)
            )
            history.observe(row.num_matched, labels)
            num_kept = max(min(row.num_matched, labels.stop) - labels.start, 0)
            request.acceptance.observe(num_kept, len(labels) - num_kept)
        history.judged(
            drafts,
            max(drafts.num_judged, row.num_resolved),
            is_over=row.num_matched < row.num_resolved or row.num_resolved == num_drafts,
        )

    def _calibration(self, source: _Source, score: Score) -> Calibration:
        key = self._of(source, score)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[key] = Calibration(score)
        return known

    def _labelled(self, source: _Source) -> Calibration | None:
        """What labels of a source say, of the scores asked for last; None: nothing, or no more."""
        if not source.score or source.num_unlabelled > MAX_UNLABELLED:
            return None
        return self._known.get(self._of(source, source.score))

    def _rates(self, epoch: int, group: int) -> tuple[tuple[float, ...], float]:
        """By position, and in the mean, of drafts of a source in one temperature class."""
        source = self._sources.get(epoch)
        if source is not None and (known := self._labelled(source)) is not None:
            mean = known.mean(group)
            if mean is not None:
                return known.rates(group), mean
        mean = min(max(self.mean(epoch), _LEAST), _MOST)
        return (mean,), mean

    def _of(self, source: _Source, score: Score) -> CurveKey:
        return self._target, source.model, score


def _key(model: ModelInfo) -> ModelKey:
    """What acceptance depends on: not where a model computes."""
    return ModelKey.of(model)._replace(device="", kernels="")
