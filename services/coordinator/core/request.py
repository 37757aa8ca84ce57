"""One request: its phases, its tokens, and its rows and blocks on the workers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from minedraft.api import SpeculationStats
from minedraft.services.coordinator.core.acceptance import Acceptance
from minedraft.services.coordinator.core.transitions import after
from minedraft.types import RequestId, RowId, RowParams, Speculation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from minedraft.services.coordinator.core.draft_history import DraftHistory
    from minedraft.types import DebugOptions


class Phase(Enum):
    """The phases of a request."""

    __hash__ = object.__hash__  # an Enum hashes its name, in Python; the table is asked often

    WAITING = "waiting"  # in the queue, owns nothing on the workers
    PREFILLING = "prefilling"  # in a batch; KV of prompt and old output is being built
    READY = "ready"  # KV is there up to the last committed token; may be drafted for
    DRAFTING = "drafting"  # a draft plan is out
    DRAFTED = "drafted"  # the drafter is done; the verifier has not begun
    VERIFYING = "verifying"  # the verifier works on it
    FINISHED = "finished"


class Event(Enum):
    """The events of a request."""

    __hash__ = object.__hash__

    ADMIT = "admit"  # put into a batch
    PREFILLED = "prefilled"  # the first new token is committed
    DRAFT = "draft"  # plans with k > 0 went out
    DRAFTS_IN = "drafts_in"  # the drafter says it is done
    VERIFY = "verify"  # its verify step is next, or went out with k = 0
    COMMIT = "commit"  # a verify result came
    PREEMPT = "preempt"  # its KV is given up, or the verifier lost it
    FINISH = "finish"  # stop, length or abort


_AGED: Final = -(2**31)
"""Priority number of one that was admitted for its age."""
_P, _E = Phase, Event
_END = {_E.PREEMPT: _P.WAITING, _E.FINISH: _P.FINISHED}

TRANSITIONS: Final[Mapping[Phase, Mapping[Event, Phase]]] = MappingProxyType(
    {
        _P.WAITING: {_E.ADMIT: _P.PREFILLING, _E.FINISH: _P.FINISHED},
        _P.PREFILLING: {_E.PREFILLED: _P.READY, **_END},
        _P.READY: {_E.DRAFT: _P.DRAFTING, _E.VERIFY: _P.VERIFYING, **_END},
        # The verifier's answer may overtake the drafter's note, hence COMMIT in all three.
        _P.DRAFTING: {_E.DRAFTS_IN: _P.DRAFTED, _E.COMMIT: _P.READY, **_END},
        _P.DRAFTED: {_E.VERIFY: _P.VERIFYING, _E.COMMIT: _P.READY, **_END},
        _P.VERIFYING: {_E.COMMIT: _P.READY, **_END},
        _P.FINISHED: {},
    }
)

_NEXT: Final = {phase: dict(events) for phase, events in TRANSITIONS.items()}
"""The same, in dicts of its own: it is looked up some times per row and step."""


@dataclass(slots=True)
class SpeculationCounts:
    """What speculation did for one request, as it is counted."""

    num_steps: int = 0
    num_draft_tokens: int = 0
    by_accepted: list[int] = field(default_factory=list)
    """Entry i: steps with drafts of which i were accepted."""

    def total(self) -> SpeculationStats:
        """Sum up, for the caller."""
        return SpeculationStats(
            num_drafts=sum(self.by_accepted),
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_tokens=sum(i * steps for i, steps in enumerate(self.by_accepted)),
            num_steps=self.num_steps,
            acceptance_histogram=tuple(self.by_accepted),
        )


@dataclass(slots=True)
class Request:
    """One sequence to generate, with its rows and blocks on the workers.

    Only `advance` and `advance_all` assign `phase`. Committed tokens are `prompt + output`; the
    workers' state is a cache of them that `preempt` gives up.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    params: RowParams
    max_tokens: int
    arrival: int = 0
    """Order of arrival."""
    priority: int = 0
    """-100..100; lower goes first."""
    cache_salt: str = field(default="", repr=False)
    """Cached prefixes are shared within one salt only."""
    speculation: Speculation = field(default_factory=Speculation)
    debug: DebugOptions | None = None
    output_token_ids: list[int] = field(default_factory=list)
    phase: Phase = Phase.WAITING
    row_id: RowId = field(default_factory=lambda: RowId(0))
    """Its row on the workers, another one after each preemption; 0 while WAITING."""
    num_computed: int = 0
    """Positions whose KV the verifier holds."""
    num_cached_tokens: int = 0
    """Prompt tokens that its first prefill took from the prefix cache."""
    block_ids: list[int] = field(default_factory=list)
    num_blocks_sent: int = 0
    """Blocks of `block_ids` that the verifier knows."""
    verifier_len: int = 0
    """Committed tokens the verifier was told of; 0: the row is not open there."""
    drafter_lens: dict[int, int] = field(default_factory=dict)
    """By draft source, committed tokens that it was told of; absent: the row is not open there."""
    behind: dict[int, bool] = field(default_factory=dict)
    """Draft sources that have said that they have not caught up with it; whether a row that feeds
    them more is out."""
    stats: SpeculationCounts = field(default_factory=SpeculationCounts)
    acceptance: Acceptance = field(default_factory=Acceptance)
    """Of its drafts, lately: of those with a label, else of those that were verified."""
    history: DraftHistory | None = None
    """What became of its drafts, by position; None: no scores came for them."""
    num_failed_steps: int = 0
    """Steps with this request in them at which the verifier failed since it last decoded."""
    num_deaths: int = 0
    """Verifier processes that died with this request in flight since it last decoded."""
    block_keys: list[bytes] = field(default_factory=list)
    """Keys of its first full blocks, as far as they were asked for."""
    num_published: int = 0
    """Blocks of `block_ids` that others may share, as far as it knows."""
    num_reached: int = 0
    """Most positions that ever had KV in this service."""
    max_token_id: int = 0
    """Largest committed id: a drafter with a smaller (less padded) vocabulary cannot take it."""
    rank: tuple[int, int] = field(init=False)
    """Priority, then arrival: lower is admitted first, and preempted last."""
    num_tokens: int = field(init=False)
    """Committed length."""
    max_len: int = field(init=False)
    """Committed length at which the request ends at the latest."""

    def __post_init__(self) -> None:
        self.rank = (self.priority, self.arrival)
        self.num_tokens = len(self.prompt_token_ids) + len(self.output_token_ids)
        self.max_len = len(self.prompt_token_ids) + self.max_tokens
        if not self.max_token_id:  # the samples of one long prompt do not all look for it
            self.max_token_id = max((*self.prompt_token_ids, *self.output_token_ids), default=0)

    @property
    def max_num_computed(self) -> int:
        """Positions that need KV at the most: the last token of all is never fed."""
        return self.max_len - 1

    @property
    def is_finished(self) -> bool:
        """Whether it has ended."""
        return self.phase is Phase.FINISHED

    def arrive(self, number: int) -> None:
        """Take its place in the order of arrival."""
        self.arrival = number
        self.rank = (self.priority, number)

    def age(self) -> None:
        """Rank before every priority from now on."""
        self.rank = (_AGED, self.arrival)

    def advance(self, event: Event) -> None:
        """Apply `event`.

        Raises:
            StateError: `event` is not allowed in the current phase.
        """
        phase = _NEXT[self.phase].get(event)
        if phase is None:  # `after` knows how to say so
            phase = after(TRANSITIONS, self.phase, event, noun="request", name=self.request_id)
        self.phase = phase

    def go_on_from(self, token_ids: Sequence[int]) -> None:
        """Begin with output that was committed elsewhere."""
        self.output_token_ids = list(token_ids)
        self.num_tokens = len(self.prompt_token_ids) + len(token_ids)
        self.max_token_id = max((self.max_token_id, *token_ids))

    def tail(self, start: int) -> tuple[int, ...]:
        """Committed tokens from position `start` on. Decode asks for the last few only."""
        num_prompt = len(self.prompt_token_ids)
        if start >= num_prompt:
            return tuple(self.output_token_ids[start - num_prompt :])
        return self.prompt_token_ids[start:] + tuple(self.output_token_ids)

    def tokens_between(self, start: int, end: int) -> tuple[int, ...]:
        """Committed tokens of positions [start, end)."""
        num_prompt = len(self.prompt_token_ids)
        if end <= num_prompt:
            return self.prompt_token_ids[start:end]
        output = self.output_token_ids[max(start - num_prompt, 0) : end - num_prompt]
        return self.prompt_token_ids[start:] + tuple(output)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Append verified tokens and note that all but the last have KV."""
        if self.phase is Phase.PREFILLING:
            self.advance(Event.PREFILLED)
        else:
            self.advance(Event.COMMIT)
            if self.num_failed_steps or self.num_deaths:
                self.num_failed_steps = self.num_deaths = 0
        self.output_token_ids.extend(token_ids)
        self.num_tokens += len(token_ids)
        self.num_computed = self.num_tokens - 1
        if token_ids and (largest := max(token_ids)) > self.max_token_id:
            self.max_token_id = largest

    def observe(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """Count what one verify step did with the drafts of a drafter."""
        stats = self.stats
        stats.num_steps += 1
        if not num_draft_tokens:
            return
        stats.num_draft_tokens += num_draft_tokens
        counts = stats.by_accepted
        if len(counts) <= num_draft_tokens:
            counts.extend([0] * (num_draft_tokens + 1 - len(counts)))
        counts[num_accepted_tokens] += 1
        history = self.history
        if history is not None and history.is_labelled:
            history.num_unlabelled += 1
        else:
            self.acceptance.observe(num_accepted_tokens, num_accepted_tokens < num_draft_tokens)

    def reset_worker_state(self) -> None:
        """Forget what the workers know; blocks must have been freed."""
        self.row_id = RowId(0)
        self.num_reached = max(self.num_reached, self.num_computed)
        self.num_computed = self.num_blocks_sent = self.num_published = self.verifier_len = 0
        self.block_ids, self.drafter_lens, self.behind = [], {}, {}


def advance_all(requests: Iterable[Request], phase: Phase, event: Event) -> None:
    """Apply `event` to those of some requests that are in `phase`, where it is allowed."""
    following = TRANSITIONS[phase][event]
    for request in requests:
        if request.phase is phase:
            request.phase = following
