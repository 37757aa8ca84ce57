from minedraft.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RowError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_ERROR_UNSPECIFIED: _ClassVar[RowError]
    ROW_ERROR_NON_FINITE: _ClassVar[RowError]
ROW_ERROR_UNSPECIFIED: RowError
ROW_ERROR_NON_FINITE: RowError

class VerifierGetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifierGetInfoResponse(_message.Message):
    __slots__ = ("identity", "model", "transports", "acceptance", "link_address")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    LINK_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    identity: _types_pb2.WorkerIdentity
    model: _types_pb2.ModelInfo
    transports: _containers.RepeatedScalarFieldContainer[_types_pb2.LinkTransport]
    acceptance: str
    link_address: str
    def __init__(self, identity: _Optional[_Union[_types_pb2.WorkerIdentity, _Mapping]] = ..., model: _Optional[_Union[_types_pb2.ModelInfo, _Mapping]] = ..., transports: _Optional[_Iterable[_Union[_types_pb2.LinkTransport, str]]] = ..., acceptance: _Optional[str] = ..., link_address: _Optional[str] = ...) -> None: ...

class VerifierOpenRow(_message.Message):
    __slots__ = ("row_id", "prompt_token_ids", "output_token_ids", "params")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    output_token_ids: _containers.RepeatedScalarFieldContainer[int]
    params: _types_pb2.RowParams
    def __init__(self, row_id: _Optional[int] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., output_token_ids: _Optional[_Iterable[int]] = ..., params: _Optional[_Union[_types_pb2.RowParams, _Mapping]] = ...) -> None: ...

class VerifyRow(_message.Message):
    __slots__ = ("row_id", "base_len", "new_token_ids", "num_computed", "num_feed", "num_draft_tokens", "new_block_ids", "block_offset", "num_ngram_tokens")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    NUM_FEED_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NEW_BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NUM_NGRAM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    base_len: int
    new_token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_computed: int
    num_feed: int
    num_draft_tokens: int
    new_block_ids: _containers.RepeatedScalarFieldContainer[int]
    block_offset: int
    num_ngram_tokens: int
    def __init__(self, row_id: _Optional[int] = ..., base_len: _Optional[int] = ..., new_token_ids: _Optional[_Iterable[int]] = ..., num_computed: _Optional[int] = ..., num_feed: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., new_block_ids: _Optional[_Iterable[int]] = ..., block_offset: _Optional[int] = ..., num_ngram_tokens: _Optional[int] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("budget", "floor", "curves", "offsets")
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    CURVES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    budget: int
    floor: int
    curves: _types_pb2.SurvivalCurves
    offsets: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, budget: _Optional[int] = ..., floor: _Optional[int] = ..., curves: _Optional[_Union[_types_pb2.SurvivalCurves, _Mapping]] = ..., offsets: _Optional[_Iterable[float]] = ...) -> None: ...

class VerifyPlan(_message.Message):
    __slots__ = ("step_id", "batch", "source", "opens", "close_row_ids", "rows", "draft_timeout_ns", "is_wide", "selection")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TIMEOUT_NS_FIELD_NUMBER: _ClassVar[int]
    IS_WIDE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    batch: int
    source: int
    opens: _containers.RepeatedCompositeFieldContainer[VerifierOpenRow]
    close_row_ids: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[VerifyRow]
    draft_timeout_ns: int
    is_wide: bool
    selection: Selection
    def __init__(self, step_id: _Optional[int] = ..., batch: _Optional[int] = ..., source: _Optional[int] = ..., opens: _Optional[_Iterable[_Union[VerifierOpenRow, _Mapping]]] = ..., close_row_ids: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[VerifyRow, _Mapping]]] = ..., draft_timeout_ns: _Optional[int] = ..., is_wide: bool = ..., selection: _Optional[_Union[Selection, _Mapping]] = ...) -> None: ...

class VerifierSessionRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: VerifyPlan
    def __init__(self, plan: _Optional[_Union[VerifyPlan, _Mapping]] = ...) -> None: ...

class RowResult(_message.Message):
    __slots__ = ("row_id", "base_len", "token_ids", "num_draft_tokens", "num_accepted_tokens", "logprobs", "error", "is_ngram")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_NGRAM_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    base_len: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_draft_tokens: int
    num_accepted_tokens: int
    logprobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.PositionLogprobs]
    error: RowError
    is_ngram: bool
    def __init__(self, row_id: _Optional[int] = ..., base_len: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., num_draft_tokens: _Optional[int] = ..., num_accepted_tokens: _Optional[int] = ..., logprobs: _Optional[_Iterable[_Union[_types_pb2.PositionLogprobs, _Mapping]]] = ..., error: _Optional[_Union[RowError, str]] = ..., is_ngram: bool = ...) -> None: ...

class VerifyResult(_message.Message):
    __slots__ = ("step_id", "batch", "rows", "timing", "num_stale_drafts")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    NUM_STALE_DRAFTS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    batch: int
    rows: _containers.RepeatedCompositeFieldContainer[RowResult]
    timing: _types_pb2.StepTiming
    num_stale_drafts: int
    def __init__(self, step_id: _Optional[int] = ..., batch: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[RowResult, _Mapping]]] = ..., timing: _Optional[_Union[_types_pb2.StepTiming, _Mapping]] = ..., num_stale_drafts: _Optional[int] = ...) -> None: ...

class StepBegun(_message.Message):
    __slots__ = ("step_id", "batch")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    batch: int
    def __init__(self, step_id: _Optional[int] = ..., batch: _Optional[int] = ...) -> None: ...

class VerifierSessionResponse(_message.Message):
    __slots__ = ("result", "link_lost", "begun")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    LINK_LOST_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    result: VerifyResult
    link_lost: _types_pb2.LinkLost
    begun: StepBegun
    def __init__(self, result: _Optional[_Union[VerifyResult, _Mapping]] = ..., link_lost: _Optional[_Union[_types_pb2.LinkLost, _Mapping]] = ..., begun: _Optional[_Union[StepBegun, _Mapping]] = ...) -> None: ...
