"""Values for operators of a running service: modes, batches, workers, spans. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minedraft.types import NO_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minedraft.plans import StepTiming, WorkerIdentity, WorkerUsage
    from minedraft.types import Mode, ModelInfo, SamplingDefaults


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """One batch of the rotation."""

    batch: int
    num_by_phase: Mapping[str, int] = field(default_factory=dict)
    """Live requests per phase (`ready`, `drafting`, ...)."""
    step_id: int = 0
    """Step in flight; 0: none."""


@dataclass(frozen=True, slots=True)
class ShapeStatus:
    """How requests may rotate."""

    num_batches: int = 0
    num_draft_tokens: int = 0
    """k; 0: plain decoding."""
    is_wide: bool = False
    """Whether plain decoding computes on the drafter's cores too."""
    tokens_per_s: float | None = None
    """Output tokens per second that are expected of it; None: unknown."""

    @property
    def name(self) -> str:
        """For people."""
        k = self.num_draft_tokens
        if self.num_batches == 1:
            plain = "plain decoding on all cores" if self.is_wide else "plain decoding"
            return f"one batch, k = {k}" if k else plain
        return f"{self.num_batches} batches, k = {k}"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker, as the coordinator sees it."""

    role: str
    """`verifier` or `drafter`."""
    address: str
    connected: bool
    identity: WorkerIdentity
    model: ModelInfo
    link_epoch: int = 0
    """Epoch of its token link; 0: none."""
    link_description: str = ""
    last_error: str = ""
    usage: WorkerUsage | None = None
    """Its latest report of its memory; None: there is none, or the worker is away."""


@dataclass(slots=True)
class Counters:
    """Totals since the coordinator started. Its own grow; everybody else's are snapshots."""

    num_requests: int = 0
    num_finished: Mapping[str, int] = field(default_factory=dict)
    """By reason; `error` is a request that ended with a status."""
    num_output_tokens: int = 0
    num_steps: int = 0
    """Verify steps."""
    num_drafts: int = 0
    """Rows verified with drafts."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_drafted_tokens: int = 0
    """Draft tokens that drafters made, verified or not; as they say."""
    num_stale_drafts: int = 0
    """Drafts that came too late, or for another epoch, step or length."""
    num_stale_results: int = 0
    num_preemptions: int = 0
    num_broken_rows: int = 0
    """Requests ended because the target's logits for their tokens were not finite."""
    num_broken_drafts: int = 0
    """Rows of draft steps that lost drafts because the draft model's logits were not finite."""
    num_behind_rows: int = 0
    """Rows verified without drafts because their drafter had not caught up with them."""
    num_ngram_tokens: int = 0
    """Drafts of the verifier's own that were verified, where no drafts came; not counted above."""
    num_accepted_ngram_tokens: int = 0
    num_prefix_hits: int = 0
    """Times that a request found blocks in the prefix cache of the target."""
    num_prefix_hit_tokens: int = 0
    """Committed tokens in those blocks, which were not fed."""
    num_evicted_blocks: int = 0
    """Cached blocks that were taken for other tokens."""
    num_peak_blocks: int = 0
    """Most KV blocks that requests held at once, each counted once."""
    num_peak_blocks_for_all: int = 0
    """The same, had all requests of all batches held blocks for k drafts at that moment."""
    num_moves: int = 0
    """Requests that went from one batch to another."""
    num_rotating_steps: int = 0
    """Steps planned with several batches while as many requests ran: no batch had to be empty."""
    num_fallback_steps: int = 0
    """Those of them at which one was empty, so that drafting and verifying took turns."""
    num_shape_switches: int = 0
    """Times that the coordinator chose another shape."""
    num_drafted_per_position: tuple[int, ...] = ()
    """Draft tokens verified, by their place in the draft, the first one first."""
    num_accepted_per_position: tuple[int, ...] = ()
    """Of them accepted; divided by `num_drafts` they are vLLM's rates per position."""


@dataclass(frozen=True, slots=True)
class SwapOrder:
    """A new model or drafter: exactly one of `model` and `address`."""

    model: str = ""
    """Directory that the drafter process loads (in place)."""
    address: str = ""
    """`host:port` of another running drafter (blue/green)."""
    replace: str = ""
    """`host:port` of the drafter to replace; empty: the first one."""


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The result of a swap."""

    epoch: int
    model: ModelInfo
    duration_ns: int
    """From the order to the end of the old link."""
    warm_up_ns: int
    """Part of it: from the forming of the new link to the cut-over."""


@dataclass(frozen=True, slots=True)
class SwapStatus:
    """Hot swaps since the coordinator started."""

    num_done: int = 0
    num_failed: int = 0
    last_duration_ns: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class CostStatus:
    """Where it was first learned what steps cost; steps of requests correct it.

    `cache`: a file of an earlier run; `measuring`: trial steps are under way; `trials`: they are
    over; `live`: steps of requests; empty: nothing is known.
    """

    target: str = ""
    draft: str = ""
    num_trials: int = 0
    """Trial steps that there were or are to do."""
    num_trials_over: int = 0
    """Of them, those that are done or given up."""
    trial_ns: int = 0
    """Device time of all that were done."""

    @property
    def is_measuring(self) -> bool:
        """Whether trial steps are under way."""
        return self.num_trials_over < self.num_trials


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """What the policy decides."""

    name: str = ""
    note: str = ""
    """Why it does as `fixed` does at present, for people; empty: it does not."""
    mean_draft_tokens: float = 0.0
    """Draft tokens per row that decodes, mean of the last steps."""
    mean_budget: float = 0.0
    """Drafts verified per step at the most, mean of the last steps that had such a budget; 0: none
    had."""


@dataclass(frozen=True, slots=True)
class DraftEstimate:
    """What is known of the drafts of one link, from labels of its drafter."""

    epoch: int
    """Of the link."""
    num_labels: int
    """Drafts of which the outcome is known, since the coordinator started."""
    calibration_error: float | None = None
    """Mean distance of the probability of a draft from the share of such drafts that stood; None:
    too few labels."""
    acceptance_by_position: tuple[float, ...] = ()
    """Probability that the first, second, ... draft stands, given that those before it do."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the coordinator."""

    identity: WorkerIdentity
    mode: Mode
    batches: tuple[BatchStatus, ...] = ()
    num_waiting: int = 0
    num_running: int = 0
    num_blocks: int = 0
    """KV blocks of the verifier's pool."""
    num_blocks_used: int = 0
    num_blocks_cached: int = 0
    """KV blocks that no request holds and that the prefix cache can still give to one."""
    workers: tuple[WorkerStatus, ...] = ()
    counters: Counters = field(default_factory=Counters)
    draining: bool = False
    rss_bytes: int = 0
    """Resident memory of the coordinator."""
    swaps: SwapStatus = field(default_factory=SwapStatus)
    num_log_lines_dropped: int = 0
    """Lines lost from the coordinator's log: its reader is slow or gone, or the disk is full."""
    costs: CostStatus = field(default_factory=CostStatus)
    shape: ShapeStatus = field(default_factory=ShapeStatus)
    """How requests rotate at present."""
    candidates: tuple[ShapeStatus, ...] = ()
    """Shapes that were priced at the last look; empty: it is fixed, or nothing ran yet."""
    policy: PolicyStatus = field(default_factory=PolicyStatus)
    estimates: tuple[DraftEstimate, ...] = ()
    """Of links whose drafts have scores."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is live or waiting, and no step of one that was aborted in flight."""
        is_stepping = any(batch.step_id for batch in self.batches)
        return self.num_waiting == 0 and self.num_running == 0 and not is_stepping


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """The target model, and what limits a request."""

    model: ModelInfo
    has_chat_template: bool
    """Whether chat prompts work."""
    sampling_defaults: SamplingDefaults = NO_DEFAULTS
    """What its makers recommend; the coordinator applies none of it."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server: version, mode, limits."""

    identity: WorkerIdentity
    mode: Mode
    max_waiting_requests: int
    """Longest waiting queue."""
    acceptance: str
    """`coupled` or `rejection`."""
    takes_debug_requests: bool = False
    """Whether `GenerationRequest.debug` is taken."""


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work on one device."""

    lane: str
    """`draft` or `verify`."""
    batch: int
    step_id: int
    timing: StepTiming
    """By the worker's clock."""
    num_rows: int = 0
    num_tokens: int = 0
    """Its output tokens: drafted, or committed."""
    num_draft_tokens: int = 0
    """Draft tokens verified; 0 in the draft lane."""
    num_accepted_tokens: int = 0
    num_prefill_rows: int = 0
    """Rows that fed prompt tokens."""

    @property
    def start_ns(self) -> int:
        """When it began, Unix ns."""
        return self.timing.started_unix_ns

    @property
    def end_ns(self) -> int:
        """When it ended, Unix ns."""
        return self.timing.started_unix_ns + self.timing.total_ns
