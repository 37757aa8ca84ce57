"""What the coordinator tells its workers and what they answer. Pure values; no protobuf.

Lengths count tokens; times are nanoseconds. `transport.plan_codec` carries these over the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from minedraft.selection import NO_CURVES

if TYPE_CHECKING:
    from minedraft.selection import Curves, Selection
    from minedraft.types import DebugOptions, ModelInfo, RowError, RowId, RowParams, TokenLogprobs

PROTOCOL_VERSION = 4
"""Version of the internal protocol; both sides of a session must have the same."""
MAX_BATCHES: Final = 8
MAX_ROWS: Final = 1024
"""Of one step."""
MAX_CATCH_UP_TOKENS: Final = 2**20
"""Committed tokens that a drafter feeds in one step."""
MAX_DRAFT_TOKENS: Final = 32
"""Of one row of a step: k."""


@dataclass(frozen=True, slots=True)
class StepTiming:
    """Where a step's time went on one worker."""

    started_unix_ns: int = 0
    total_ns: int = 0
    forward_ns: int = 0
    sample_ns: int = 0
    wait_ns: int = 0
    """Waiting for this step's drafts while the device was free."""
    idle_ns: int = 0
    """Device idle since the end of its last step."""
    cpu_ns: int = 0
    bubble_ns: int = 0
    """Of `idle_ns`: plan and drafts were both already there."""


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A row becomes known to a worker."""

    row_id: RowId
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...]
    params: RowParams
    debug: DebugOptions | None = None
    """Drafter only: for its test kinds."""
    cache_salt: str = field(default="", repr=False)
    """Drafter only: rows share KV blocks within one salt."""


class DraftRow(NamedTuple):
    """One row of a draft step; a tuple, because the coordinator makes one per row and step."""

    row_id: RowId
    base_len: int
    """Committed length to draft from."""
    new_token_ids: tuple[int, ...]
    """Committed tokens that end at `base_len`; repeats are fine."""
    num_draft_tokens: int
    """k; 0: only bring the KV cache up to `base_len`."""


class Score(IntEnum):
    """What a drafter says of each draft beside its id."""

    NONE = 0
    MARGIN = 1
    """Best minus second-best perturbed score, log q + noise, in 0..4; greedy: of the logits."""
    SURPRISAL = 2
    """-log q of the draft, after temperature and truncation; greedy: at temperature 1; >= 0."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A row stops after its first draft whose survival is under `below`. Only with a score."""

    below: float
    """0..1."""
    curves: Curves = NO_CURVES
    offsets: tuple[float, ...] = ()
    """As of a `Selection`."""


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """One draft step of one batch."""

    step_id: int
    batch: int
    epoch: int
    rows: tuple[DraftRow, ...] = ()
    opens: tuple[OpenRow, ...] = ()
    closes: tuple[RowId, ...] = ()
    is_trial: bool = False
    """A measurement: no packet is sent."""
    max_catch_up_tokens: int = 0
    """Most committed tokens to feed, all rows together; 0: as the drafter's own setting. The
    smaller one counts."""
    score: Score = Score.NONE
    """What to say of each draft, in the packet and in the result."""
    stop: Stop | None = None
    """None: every row drafts its k."""
    may_run_ahead: bool = False
    """Whether to draw ahead of the next plan after this one: nothing else will be drafted until
    these drafts are verified, and the cores are the drafter's."""


class VerifyRow(NamedTuple):
    """One row of a verify step: feed committed tokens, then drafts; sample at the end.

    A tuple, because the coordinator makes one per row and step.
    """

    row_id: RowId
    base_len: int
    new_token_ids: tuple[int, ...]
    num_computed: int
    """Positions whose KV is valid."""
    num_feed: int
    """Committed tokens to feed, >= 1."""
    num_draft_tokens: int
    """Most drafts to verify; 0 unless the feed reaches `base_len`."""
    new_block_ids: tuple[int, ...]
    block_offset: int
    """Length of the row's block table before `new_block_ids`; a longer one is cut to it first."""
    num_ngram_tokens: int = 0
    """Most drafts that the verifier makes from the row's own tokens where none come; 0 unless the
    feed reaches `base_len`. No step waits for these."""


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """One verify step of one batch."""

    step_id: int
    batch: int
    source: int
    """Draft source whose drafts this step waits for; 0: none. One that drafts over a link has the
    epoch of that link as its number."""
    rows: tuple[VerifyRow, ...] = ()
    opens: tuple[OpenRow, ...] = ()
    closes: tuple[RowId, ...] = ()
    draft_timeout_ns: int = 0
    """Longest wait for drafts, from the plan's arrival at the verifier."""
    is_wide: bool = False
    """Whether to compute on the verifier's spare threads too: no drafter is at work."""
    selection: Selection | None = None
    """Which of the drafts to verify; None: all."""


@dataclass(frozen=True, slots=True)
class RowResult:
    """What became of one row of a verify step."""

    row_id: RowId
    base_len: int
    token_ids: tuple[int, ...]
    """Accepted drafts, then one recovered or bonus token; empty after a prefill chunk."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    error: RowError | None = None
    """Why the row cannot continue; then it has no tokens."""
    is_ngram: bool = False
    """Whether its drafts are the verifier's own."""


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of one verify plan."""

    step_id: int
    batch: int
    rows: tuple[RowResult, ...]
    timing: StepTiming
    num_stale_drafts: int = 0


@dataclass(frozen=True, slots=True)
class StepBegun:
    """The verifier is at a step, or will be when those that began before it have ended."""

    step_id: int
    batch: int


class DraftRowResult(NamedTuple):
    """A row of a draft step without drafts, or, if scores are asked for, any row."""

    row_id: RowId
    base_len: int
    """Committed length that the plan named."""
    is_behind: bool = False
    """Whether its KV cache needs more steps to catch up with the committed tokens; one for which
    the drafter has no room does not count."""
    scores: tuple[float, ...] = ()
    """One per draft of this step; empty unless the plan asks for them."""
    judged_len: int = 0
    """Base length of earlier drafts of the row, the oldest of which the committed tokens tell
    something new; 0: of none. Mostly they are those of its last step; older ones, up to
    `2 * MAX_DRAFT_TOKENS` steps, where not all were verified."""
    num_matched: int = 0
    """Of these drafts, the leading ones that equal the committed tokens."""
    num_resolved: int = 0
    """Of these drafts, those that are judged: the matched ones and, if there is one, the first
    that differs. Drafts after it were made on a token that does not stand: they are not judged.
    A later step may say more of the same drafts: these numbers count from the first draft again."""


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The result of one draft plan; the drafts themselves went over the link."""

    step_id: int
    batch: int
    num_draft_tokens: int
    num_rows: int
    timing: StepTiming
    epoch: int = 0
    num_broken: int = 0
    """Rows that lack drafts because the draft model's logits for their tokens are not finite."""
    rows: tuple[DraftRowResult, ...] = ()
    """Rows of the plan that have no drafts, in its order; all its rows if it asks for scores."""
    num_catch_up_tokens: int = 0
    """Committed tokens that the draft model was fed, all rows together."""
    num_ahead_tokens: int = 0
    """Of the drafts, those that were drawn before the plan came."""

    @property
    def num_behind(self) -> int:
        """Rows that need more steps to catch up."""
        return sum(row.is_behind for row in self.rows)


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A worker says that the link of this epoch broke."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """What a worker holds at the moment."""

    num_blocks: int
    """KV blocks of its pools; two pools while a model takes the place of another."""
    num_blocks_used: int
    rss_bytes: int
    """Resident memory of its process."""
    num_blocks_cached: int = 0
    """KV blocks that no row lists and that the prefix cache can still give to one."""
    num_prefix_hit_tokens: int = 0
    """Committed tokens that rows of its links found in cached blocks, and were not fed."""
    num_ahead_tokens: int = 0
    """Tokens that a drafter drew ahead of plans, over the links it has."""
    num_ahead_used_tokens: int = 0
    """Of them, those that became drafts."""
    longest_ahead_wait_ns: int = 0
    """Longest that a plan waited for a pass that drew ahead."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who a worker process is."""

    instance_id: str
    """Drawn at process start: another value behind the same address is another worker."""
    protocol_version: int
    started_unix_ns: int
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself in the handshake."""

    identity: WorkerIdentity
    model: ModelInfo
    transports: tuple[str, ...]
    """Link transports this process can use ("gloo", "grpc", ...)."""
    acceptance: str = ""
    """Verifier only: "coupled" or "rejection"."""
    link_address: str = ""
    """Verifier only: where its TokenLink service is; empty: the address dialled."""
