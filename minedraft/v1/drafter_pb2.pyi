from minedraft.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftScore(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFT_SCORE_UNSPECIFIED: _ClassVar[DraftScore]
    DRAFT_SCORE_MARGIN: _ClassVar[DraftScore]
    DRAFT_SCORE_SURPRISAL: _ClassVar[DraftScore]
DRAFT_SCORE_UNSPECIFIED: DraftScore
DRAFT_SCORE_MARGIN: DraftScore
DRAFT_SCORE_SURPRISAL: DraftScore

class DrafterDropLinkRequest(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class DrafterDropLinkResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrafterLoadModelRequest(_message.Message):
    __slots__ = ("model", "tokenizer_fingerprint")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    model: str
    tokenizer_fingerprint: str
    def __init__(self, model: _Optional[str] = ..., tokenizer_fingerprint: _Optional[str] = ...) -> None: ...

class DrafterLoadModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: _types_pb2.ModelInfo
    def __init__(self, model: _Optional[_Union[_types_pb2.ModelInfo, _Mapping]] = ...) -> None: ...

class DrafterGetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrafterGetInfoResponse(_message.Message):
    __slots__ = ("identity", "model", "transports")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    identity: _types_pb2.WorkerIdentity
    model: _types_pb2.ModelInfo
    transports: _containers.RepeatedScalarFieldContainer[_types_pb2.LinkTransport]
    def __init__(self, identity: _Optional[_Union[_types_pb2.WorkerIdentity, _Mapping]] = ..., model: _Optional[_Union[_types_pb2.ModelInfo, _Mapping]] = ..., transports: _Optional[_Iterable[_Union[_types_pb2.LinkTransport, str]]] = ...) -> None: ...

class DrafterFormLinkRequest(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: _types_pb2.FormLinkRequest
    def __init__(self, link: _Optional[_Union[_types_pb2.FormLinkRequest, _Mapping]] = ...) -> None: ...

class DrafterFormLinkResponse(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: str
    def __init__(self, description: _Optional[str] = ...) -> None: ...

class DrafterOpenRow(_message.Message):
    __slots__ = ("row_id", "token_ids", "num_prompt_tokens", "params", "debug", "cache_salt")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_prompt_tokens: int
    params: _types_pb2.RowParams
    debug: _types_pb2.DebugOptions
    cache_salt: str
    def __init__(self, row_id: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., num_prompt_tokens: _Optional[int] = ..., params: _Optional[_Union[_types_pb2.RowParams, _Mapping]] = ..., debug: _Optional[_Union[_types_pb2.DebugOptions, _Mapping]] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class DraftRow(_message.Message):
    __slots__ = ("row_id", "base_len", "new_token_ids", "num_draft_tokens")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    base_len: int
    new_token_ids: _containers.RepeatedScalarFieldContainer[int]
    num_draft_tokens: int
    def __init__(self, row_id: _Optional[int] = ..., base_len: _Optional[int] = ..., new_token_ids: _Optional[_Iterable[int]] = ..., num_draft_tokens: _Optional[int] = ...) -> None: ...

class DraftStop(_message.Message):
    __slots__ = ("below", "curves", "offsets")
    BELOW_FIELD_NUMBER: _ClassVar[int]
    CURVES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    below: float
    curves: _types_pb2.SurvivalCurves
    offsets: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, below: _Optional[float] = ..., curves: _Optional[_Union[_types_pb2.SurvivalCurves, _Mapping]] = ..., offsets: _Optional[_Iterable[float]] = ...) -> None: ...

class DraftPlan(_message.Message):
    __slots__ = ("step_id", "batch", "epoch", "opens", "close_row_ids", "rows", "is_trial", "max_catch_up_tokens", "score", "stop", "may_run_ahead")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    IS_TRIAL_FIELD_NUMBER: _ClassVar[int]
    MAX_CATCH_UP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MAY_RUN_AHEAD_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    batch: int
    epoch: int
    opens: _containers.RepeatedCompositeFieldContainer[DrafterOpenRow]
    close_row_ids: _containers.RepeatedScalarFieldContainer[int]
    rows: _containers.RepeatedCompositeFieldContainer[DraftRow]
    is_trial: bool
    max_catch_up_tokens: int
    score: DraftScore
    stop: DraftStop
    may_run_ahead: bool
    def __init__(self, step_id: _Optional[int] = ..., batch: _Optional[int] = ..., epoch: _Optional[int] = ..., opens: _Optional[_Iterable[_Union[DrafterOpenRow, _Mapping]]] = ..., close_row_ids: _Optional[_Iterable[int]] = ..., rows: _Optional[_Iterable[_Union[DraftRow, _Mapping]]] = ..., is_trial: bool = ..., max_catch_up_tokens: _Optional[int] = ..., score: _Optional[_Union[DraftScore, str]] = ..., stop: _Optional[_Union[DraftStop, _Mapping]] = ..., may_run_ahead: bool = ...) -> None: ...

class DrafterSessionRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: DraftPlan
    def __init__(self, plan: _Optional[_Union[DraftPlan, _Mapping]] = ...) -> None: ...

class DraftRowResult(_message.Message):
    __slots__ = ("row_id", "base_len", "is_behind", "scores", "judged_len", "num_matched", "num_resolved")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    IS_BEHIND_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    JUDGED_LEN_FIELD_NUMBER: _ClassVar[int]
    NUM_MATCHED_FIELD_NUMBER: _ClassVar[int]
    NUM_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    base_len: int
    is_behind: bool
    scores: _containers.RepeatedScalarFieldContainer[float]
    judged_len: int
    num_matched: int
    num_resolved: int
    def __init__(self, row_id: _Optional[int] = ..., base_len: _Optional[int] = ..., is_behind: bool = ..., scores: _Optional[_Iterable[float]] = ..., judged_len: _Optional[int] = ..., num_matched: _Optional[int] = ..., num_resolved: _Optional[int] = ...) -> None: ...

class DraftResult(_message.Message):
    __slots__ = ("step_id", "batch", "num_draft_tokens", "num_rows", "timing", "epoch", "num_broken", "rows", "num_catch_up_tokens", "num_ahead_tokens")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NUM_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_BROKEN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NUM_CATCH_UP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_AHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    batch: int
    num_draft_tokens: int
    num_rows: int
    timing: _types_pb2.StepTiming
    epoch: int
    num_broken: int
    rows: _containers.RepeatedCompositeFieldContainer[DraftRowResult]
    num_catch_up_tokens: int
    num_ahead_tokens: int
    def __init__(self, step_id: _Optional[int] = ..., batch: _Optional[int] = ..., num_draft_tokens: _Optional[int] = ..., num_rows: _Optional[int] = ..., timing: _Optional[_Union[_types_pb2.StepTiming, _Mapping]] = ..., epoch: _Optional[int] = ..., num_broken: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[DraftRowResult, _Mapping]]] = ..., num_catch_up_tokens: _Optional[int] = ..., num_ahead_tokens: _Optional[int] = ...) -> None: ...

class DrafterSessionResponse(_message.Message):
    __slots__ = ("result", "link_lost", "usage")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    LINK_LOST_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    result: DraftResult
    link_lost: _types_pb2.LinkLost
    usage: _types_pb2.WorkerUsage
    def __init__(self, result: _Optional[_Union[DraftResult, _Mapping]] = ..., link_lost: _Optional[_Union[_types_pb2.LinkLost, _Mapping]] = ..., usage: _Optional[_Union[_types_pb2.WorkerUsage, _Mapping]] = ...) -> None: ...
