from minedraft.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BatchStatus(_message.Message):
    __slots__ = ("batch", "num_by_phase", "step_id")
    class NumByPhaseEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NUM_BY_PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    batch: int
    num_by_phase: _containers.ScalarMap[str, int]
    step_id: int
    def __init__(self, batch: _Optional[int] = ..., num_by_phase: _Optional[_Mapping[str, int]] = ..., step_id: _Optional[int] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("role", "address", "connected", "identity", "model", "link_epoch", "link_description", "last_error", "usage")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LINK_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    role: str
    address: str
    connected: bool
    identity: _types_pb2.WorkerIdentity
    model: _types_pb2.ModelInfo
    link_epoch: int
    link_description: str
    last_error: str
    usage: _types_pb2.WorkerUsage
    def __init__(self, role: _Optional[str] = ..., address: _Optional[str] = ..., connected: bool = ..., identity: _Optional[_Union[_types_pb2.WorkerIdentity, _Mapping]] = ..., model: _Optional[_Union[_types_pb2.ModelInfo, _Mapping]] = ..., link_epoch: _Optional[int] = ..., link_description: _Optional[str] = ..., last_error: _Optional[str] = ..., usage: _Optional[_Union[_types_pb2.WorkerUsage, _Mapping]] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("num_requests", "num_finished", "num_output_tokens", "num_steps", "num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_stale_drafts", "num_stale_results", "num_preemptions", "num_broken_rows", "num_broken_drafts", "num_behind_rows", "num_moves", "num_rotating_steps", "num_fallback_steps", "num_shape_switches", "num_ngram_tokens", "num_accepted_ngram_tokens", "num_prefix_hits", "num_prefix_hit_tokens", "num_evicted_blocks", "num_peak_blocks", "num_peak_blocks_for_all", "num_drafted_per_position", "num_accepted_per_position", "num_drafted_tokens")
    class NumFinishedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NUM_FINISHED_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_STALE_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_STALE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_BROKEN_ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_BROKEN_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    NUM_BEHIND_ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_MOVES_FIELD_NUMBER: _ClassVar[int]
    NUM_ROTATING_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_FALLBACK_STEPS_FIELD_NUMBER: _ClassVar[int]
    NUM_SHAPE_SWITCHES_FIELD_NUMBER: _ClassVar[int]
    NUM_NGRAM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_NGRAM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HITS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_EVICTED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PEAK_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_PEAK_BLOCKS_FOR_ALL_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTED_PER_POSITION_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_PER_POSITION_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    num_requests: int
    num_finished: _containers.ScalarMap[str, int]
    num_output_tokens: int
    num_steps: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_stale_drafts: int
    num_stale_results: int
    num_preemptions: int
    num_broken_rows: int
    num_broken_drafts: int
    num_behind_rows: int
    num_moves: int
    num_rotating_steps: int
    num_fallback_steps: int
    num_shape_switches: int
    num_ngram_tokens: int
    num_accepted_ngram_tokens: int
    num_prefix_hits: int
    num_prefix_hit_tokens: int
    num_evicted_blocks: int
    num_peak_blocks: int
    num_peak_blocks_for_all: int
    num_drafted_per_position: _containers.RepeatedScalarFieldContainer[int]
    num_accepted_per_position: _containers.RepeatedScalarFieldContainer[int]
    num_drafted_tokens: int
    def __init__(self, num_requests: _Optional[int] = ..., num_finished: _Optional[_Mapping[str, int]] = ..., num_output_tokens: _Optional[int] = ..., num_steps: _Optional[int] = ..., num_drafts: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., num_stale_drafts: _Optional[int] = ..., num_stale_results: _Optional[int] = ..., num_preemptions: _Optional[int] = ..., num_broken_rows: _Optional[int] = ..., num_broken_drafts: _Optional[int] = ..., num_behind_rows: _Optional[int] = ..., num_moves: _Optional[int] = ..., num_rotating_steps: _Optional[int] = ..., num_fallback_steps: _Optional[int] = ..., num_shape_switches: _Optional[int] = ..., num_ngram_tokens: _Optional[int] = ..., num_accepted_ngram_tokens: _Optional[int] = ..., num_prefix_hits: _Optional[int] = ..., num_prefix_hit_tokens: _Optional[int] = ..., num_evicted_blocks: _Optional[int] = ..., num_peak_blocks: _Optional[int] = ..., num_peak_blocks_for_all: _Optional[int] = ..., num_drafted_per_position: _Optional[_Iterable[int]] = ..., num_accepted_per_position: _Optional[_Iterable[int]] = ..., num_drafted_tokens: _Optional[int] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("num_batches", "num_draft_tokens", "tokens_per_s", "is_wide")
    NUM_BATCHES_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    IS_WIDE_FIELD_NUMBER: _ClassVar[int]
    num_batches: int
    num_draft_tokens: int
    tokens_per_s: float
    is_wide: bool
    def __init__(self, num_batches: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., tokens_per_s: _Optional[float] = ..., is_wide: bool = ...) -> None: ...

class CostStatus(_message.Message):
    __slots__ = ("target", "draft", "num_trials", "num_trials_over", "trial_ns")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    NUM_TRIALS_FIELD_NUMBER: _ClassVar[int]
    NUM_TRIALS_OVER_FIELD_NUMBER: _ClassVar[int]
    TRIAL_NS_FIELD_NUMBER: _ClassVar[int]
    target: str
    draft: str
    num_trials: int
    num_trials_over: int
    trial_ns: int
    def __init__(self, target: _Optional[str] = ..., draft: _Optional[str] = ..., num_trials: _Optional[int] = ..., num_trials_over: _Optional[int] = ..., trial_ns: _Optional[int] = ...) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("name", "note", "mean_draft_tokens", "mean_budget")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    MEAN_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MEAN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    name: str
    note: str
    mean_draft_tokens: float
    mean_budget: float
    def __init__(self, name: _Optional[str] = ..., note: _Optional[str] = ..., mean_draft_tokens: _Optional[float] = ..., mean_budget: _Optional[float] = ...) -> None: ...

class DraftEstimate(_message.Message):
    __slots__ = ("epoch", "num_labels", "calibration_error", "acceptance_by_position")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_ERROR_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    num_labels: int
    calibration_error: float
    acceptance_by_position: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, epoch: _Optional[int] = ..., num_labels: _Optional[int] = ..., calibration_error: _Optional[float] = ..., acceptance_by_position: _Optional[_Iterable[float]] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("identity", "mode", "batches", "num_waiting", "num_running", "num_blocks", "num_blocks_used", "workers", "counters", "draining", "rss_bytes", "swaps", "num_log_lines_dropped", "num_blocks_cached", "costs", "shape", "candidates", "policy", "estimates")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOG_LINES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_CACHED_FIELD_NUMBER: _ClassVar[int]
    COSTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ESTIMATES_FIELD_NUMBER: _ClassVar[int]
    identity: _types_pb2.WorkerIdentity
    mode: SetModeRequest
    batches: _containers.RepeatedCompositeFieldContainer[BatchStatus]
    num_waiting: int
    num_running: int
    num_blocks: int
    num_blocks_used: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    counters: Counters
    draining: bool
    rss_bytes: int
    swaps: SwapStatus
    num_log_lines_dropped: int
    num_blocks_cached: int
    costs: CostStatus
    shape: Shape
    candidates: _containers.RepeatedCompositeFieldContainer[Shape]
    policy: PolicyStatus
    estimates: _containers.RepeatedCompositeFieldContainer[DraftEstimate]
    def __init__(self, identity: _Optional[_Union[_types_pb2.WorkerIdentity, _Mapping]] = ..., mode: _Optional[_Union[SetModeRequest, _Mapping]] = ..., batches: _Optional[_Iterable[_Union[BatchStatus, _Mapping]]] = ..., num_waiting: _Optional[int] = ..., num_running: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_blocks_used: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., draining: bool = ..., rss_bytes: _Optional[int] = ..., swaps: _Optional[_Union[SwapStatus, _Mapping]] = ..., num_log_lines_dropped: _Optional[int] = ..., num_blocks_cached: _Optional[int] = ..., costs: _Optional[_Union[CostStatus, _Mapping]] = ..., shape: _Optional[_Union[Shape, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., policy: _Optional[_Union[PolicyStatus, _Mapping]] = ..., estimates: _Optional[_Iterable[_Union[DraftEstimate, _Mapping]]] = ...) -> None: ...

class SetModeRequest(_message.Message):
    __slots__ = ("num_batches", "max_batch_size", "num_draft_tokens", "shape", "policy")
    NUM_BATCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    num_batches: int
    max_batch_size: int
    num_draft_tokens: int
    shape: str
    policy: str
    def __init__(self, num_batches: _Optional[int] = ..., max_batch_size: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., shape: _Optional[str] = ..., policy: _Optional[str] = ...) -> None: ...

class SetModeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class SwapDrafterRequest(_message.Message):
    __slots__ = ("model", "address", "replace")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    model: str
    address: str
    replace: str
    def __init__(self, model: _Optional[str] = ..., address: _Optional[str] = ..., replace: _Optional[str] = ...) -> None: ...

class SwapDrafterResponse(_message.Message):
    __slots__ = ("epoch", "model", "duration_ns", "warm_up_ns")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    WARM_UP_NS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    model: _types_pb2.ModelInfo
    duration_ns: int
    warm_up_ns: int
    def __init__(self, epoch: _Optional[int] = ..., model: _Optional[_Union[_types_pb2.ModelInfo, _Mapping]] = ..., duration_ns: _Optional[int] = ..., warm_up_ns: _Optional[int] = ...) -> None: ...

class SwapStatus(_message.Message):
    __slots__ = ("num_done", "num_failed", "last_duration_ns", "last_error")
    NUM_DONE_FIELD_NUMBER: _ClassVar[int]
    NUM_FAILED_FIELD_NUMBER: _ClassVar[int]
    LAST_DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    num_done: int
    num_failed: int
    last_duration_ns: int
    last_error: str
    def __init__(self, num_done: _Optional[int] = ..., num_failed: _Optional[int] = ..., last_duration_ns: _Optional[int] = ..., last_error: _Optional[str] = ...) -> None: ...

class GetTimelineRequest(_message.Message):
    __slots__ = ("max_spans", "since_unix_ns")
    MAX_SPANS_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    max_spans: int
    since_unix_ns: int
    def __init__(self, max_spans: _Optional[int] = ..., since_unix_ns: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("lane", "batch", "step_id", "timing", "num_rows", "num_tokens", "num_draft_tokens", "num_accepted_tokens", "num_prefill_rows")
    LANE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFILL_ROWS_FIELD_NUMBER: _ClassVar[int]
    lane: str
    batch: int
    step_id: int
    timing: _types_pb2.StepTiming
    num_rows: int
    num_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_prefill_rows: int
    def __init__(self, lane: _Optional[str] = ..., batch: _Optional[int] = ..., step_id: _Optional[int] = ..., timing: _Optional[_Union[_types_pb2.StepTiming, _Mapping]] = ..., num_rows: _Optional[int] = ..., num_tokens: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., num_prefill_rows: _Optional[int] = ...) -> None: ...

class GetTimelineResponse(_message.Message):
    __slots__ = ("spans",)
    SPANS_FIELD_NUMBER: _ClassVar[int]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...
