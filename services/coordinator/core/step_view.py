"""A policy's view of a batch before its next step: numbers of all its members. Pure values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from minedraft.plans import MAX_DRAFT_TOKENS, Score
from minedraft.selection import temperature_class
from minedraft.services.coordinator.core.solver import Legs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minedraft.selection import Curves
    from minedraft.services.coordinator.core.costs import Costs
    from minedraft.services.coordinator.core.estimator import Estimator
    from minedraft.services.coordinator.core.request import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a step."""

    num_draft_tokens: int
    """k of the service; 0: no speculation."""
    prefill_budget_tokens: int
    """Most prompt tokens fed in one step, all rows together; >= 1."""
    max_model_len: int
    """Positions the target has."""
    drafter_max_len: int
    """Positions the drafter has; 0: there is no drafter."""
    drafter_vocab_size: int = 2**32
    """Ids that the drafter knows are below this."""
    source: int = 0
    """Number of the draft source of this batch; 0: there is none."""
    num_batches: int = 1
    """That rotate, those with members."""
    num_drafters: int = 1
    """That draft."""
    num_ngram_tokens: int = 0
    """Most drafts of the verifier's own, where its source has none for a row; 0: none."""


@dataclass(slots=True)
class DecodingSequence:
    """A member whose next step drafts and samples."""

    num_committed_tokens: int
    wanted_draft_tokens: int
    """k that its caller and the service ask for; 0: no speculation, or its draft source has not
    caught up with it."""
    headroom: int
    """Most drafts that a plan carries, and before its output, the context or the drafter's context
    ends; >= 0."""
    num_held_positions: int
    """Positions that its KV blocks cover: drafts beyond them need free blocks."""
    acceptance: float
    """Probability that the target keeps its next draft, given that it kept those before; 0..1."""


@dataclass(slots=True)
class PrefillingSequence:
    """A member whose next step feeds a part of its prompt."""

    num_committed_tokens: int
    num_missing_tokens: int
    """Committed tokens without KV; >= 1."""


@dataclass(slots=True)
class StepView:
    """All members of one batch that may step together, and what bounds them."""

    batch: int
    decoding: Sequence[DecodingSequence]
    """By priority, of equal ones the oldest first."""
    prefilling: list[PrefillingSequence]
    """Oldest first."""
    limits: Limits
    costs: Costs
    """What steps cost. Read only."""
    estimator: Estimator
    """How likely drafts stand. Read only."""
    num_free_blocks: int
    block_size: int
    """Positions per block."""
    most_draft_tokens: list[int]
    """Of each member that decodes: what it wants, as far as it has room for it; >= 0."""

    members: Sequence[Request] = ()
    """Those that decode, as `decoding`. Read only."""

    @property
    def why_no_scores(self) -> str:
        """Why nothing can be chosen by score, for people; empty: it can, as far as is known."""
        if self.costs.of_source(self.limits.source).sends_scores is False:
            return "the drafter sends no scores"
        return ""

    def curves(self) -> Curves:
        """From margins to survivals of single drafts."""
        return self.estimator.curves(self.limits.source)

    def forecasts(self) -> list[list[float]]:
        """Of each member, the probability that its first draft stands, its first two, ..."""
        forecast, source = self.estimator.forecast, self.limits.source
        return [
            forecast(member, source, k)
            for member, k in zip(self.members, self.most_draft_tokens, strict=True)
        ]

    def last_survivals(self) -> list[list[float]]:
        """The same, by the scores of each member's last drafts; without scores, its forecast."""
        source, curves = self.limits.source, self.curves()
        found = []
        for member, k in zip(self.members, self.most_draft_tokens, strict=True):
            history = member.history
            scores = history.last_scores(source, Score.MARGIN)[:k] if history is not None else ()
            if history is None or not scores:
                found.append(self.estimator.forecast(member, source, k))
                continue
            group, offset = temperature_class(member.params.temperature), history.offset
            survival, row = 1.0, []
            for position, score in enumerate(scores):
                survival *= curves.factor(group, position, score, offset)
                row.append(survival)
            found.append(row)
        return found

    def legs(self) -> Legs:
        """What a step of the members that decode costs, by what is drafted and verified."""
        limits = self.limits
        return Legs(
            self.costs,
            limits.source,
            len(self.decoding),
            sum(member.num_committed_tokens for member in self.decoding),
            limits.num_batches,
            limits.num_drafters,
        )


class DecodingMembers(Sequence[DecodingSequence]):
    """Numbers of members that decode, made when a policy first looks at one: `fixed` never does.

    Args:
        requests: Members in phase READY.
        limits: The bounds of the step.
        block_size: Positions per block.
        acceptance: Mean of their draft source.
    """

    def __init__(
        self, requests: Sequence[Request], limits: Limits, block_size: int, acceptance: float
    ) -> None:
        self._requests = requests
        self._limits = limits
        self._block_size = block_size
        self._acceptance = acceptance
        self._made: list[DecodingSequence] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, index: int) -> DecodingSequence: ...

    @overload
    def __getitem__(self, index: slice) -> list[DecodingSequence]: ...

    def __getitem__(self, index: int | slice) -> DecodingSequence | list[DecodingSequence]:
        if self._made is None:
            self._made = view_decoding(
                self._requests, self._limits, self._block_size, self._acceptance
            )
        return self._made[index]


def most_draft_tokens(requests: Iterable[Request], limits: Limits) -> list[int]:
    """Most drafts of each member in phase READY: what it wants, as far as it has room for it."""
    service_k, source = min(limits.num_draft_tokens, MAX_DRAFT_TOKENS), limits.source
    vocab_size = limits.drafter_vocab_size
    most_len = min(limits.max_model_len, limits.drafter_max_len + 1)
    ks = []
    for request in requests:
        k = request.speculation.num_draft_tokens
        if k is None or k > service_k:
            k = service_k
        if (request.behind and source in request.behind) or request.max_token_id >= vocab_size:
            k = 0
        # A step that starts from L committed tokens emits at most k + 1, so L + k + 1 <= max_len;
        # the drafter feeds positions up to L + k - 2 and needs them all.
        room = min(request.max_len, most_len) - 1 - request.num_tokens
        ks.append(k if k <= room else max(room, 0))
    return ks


def most_ngram_tokens(request: Request, limits: Limits) -> int:
    """Most drafts of the verifier's own for a member in phase READY; a caller may want none."""
    wanted = request.speculation.num_draft_tokens
    most = limits.num_ngram_tokens if wanted is None else min(wanted, limits.num_ngram_tokens)
    room = min(request.max_len, limits.max_model_len) - 1 - request.num_tokens
    return max(min(most, room, MAX_DRAFT_TOKENS), 0)


def view_decoding(
    requests: Iterable[Request], limits: Limits, block_size: int, acceptance: float
) -> list[DecodingSequence]:
    """Numbers of members in phase READY; `acceptance` is the mean of their draft source."""
    service_k, max_len = limits.num_draft_tokens, limits.max_model_len
    drafter_len, drafter_vocab = limits.drafter_max_len, limits.drafter_vocab_size
    views = []
    for request in requests:
        num_tokens = request.num_tokens
        wanted = request.speculation.num_draft_tokens
        if request.behind and limits.source in request.behind:
            wanted = 0
        # A step that starts from L committed tokens emits at most k + 1, so L + k + 1 <= max_len;
        # the drafter feeds positions up to L + k - 2 and needs them all.
        end = min(request.max_len - 1, max_len - 1, drafter_len)
        has_room = end > num_tokens and request.max_token_id < drafter_vocab
        views.append(
            DecodingSequence(
                num_tokens,
                service_k if wanted is None or wanted > service_k else wanted,
                min(end - num_tokens, MAX_DRAFT_TOKENS) if has_room else 0,
                len(request.block_ids) * block_size,
                request.acceptance.mean(acceptance),
            )
        )
    return views


def view_prefilling(requests: Iterable[Request]) -> list[PrefillingSequence]:
    """Numbers of members in phase PREFILLING whose prompt is not fed to its end."""
    return [PrefillingSequence(r.num_tokens, r.num_tokens - r.num_computed) for r in requests]
