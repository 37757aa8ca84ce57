from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LinkTransport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_TRANSPORT_UNSPECIFIED: _ClassVar[LinkTransport]
    LINK_TRANSPORT_LOCAL: _ClassVar[LinkTransport]
    LINK_TRANSPORT_GLOO: _ClassVar[LinkTransport]
    LINK_TRANSPORT_GRPC: _ClassVar[LinkTransport]
    LINK_TRANSPORT_NCCL: _ClassVar[LinkTransport]
LINK_TRANSPORT_UNSPECIFIED: LinkTransport
LINK_TRANSPORT_LOCAL: LinkTransport
LINK_TRANSPORT_GLOO: LinkTransport
LINK_TRANSPORT_GRPC: LinkTransport
LINK_TRANSPORT_NCCL: LinkTransport

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RowParams(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "min_tokens", "stop_ids", "bad_words", "allowed_token_ids", "seed", "logprobs")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    BAD_WORDS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    min_tokens: int
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    bad_words: _containers.RepeatedCompositeFieldContainer[TokenIds]
    allowed_token_ids: _containers.RepeatedScalarFieldContainer[int]
    seed: int
    logprobs: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., min_tokens: _Optional[int] = ..., stop_ids: _Optional[_Iterable[int]] = ..., bad_words: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ..., allowed_token_ids: _Optional[_Iterable[int]] = ..., seed: _Optional[int] = ..., logprobs: _Optional[int] = ...) -> None: ...

class DebugOptions(_message.Message):
    __slots__ = ("reference_token_ids", "synthetic_acceptance")
    REFERENCE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_ACCEPTANCE_FIELD_NUMBER: _ClassVar[int]
    reference_token_ids: _containers.RepeatedScalarFieldContainer[int]
    synthetic_acceptance: float
    def __init__(self, reference_token_ids: _Optional[_Iterable[int]] = ..., synthetic_acceptance: _Optional[float] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token_id", "logprob", "token_bytes")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    token_bytes: bytes
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ..., token_bytes: _Optional[bytes] = ...) -> None: ...

class PositionLogprobs(_message.Message):
    __slots__ = ("token", "top")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token: TokenLogprob
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, token: _Optional[_Union[TokenLogprob, _Mapping]] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class StepTiming(_message.Message):
    __slots__ = ("started_unix_ns", "total_ns", "forward_ns", "sample_ns", "wait_ns", "idle_ns", "cpu_ns", "bubble_ns")
    STARTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    IDLE_NS_FIELD_NUMBER: _ClassVar[int]
    CPU_NS_FIELD_NUMBER: _ClassVar[int]
    BUBBLE_NS_FIELD_NUMBER: _ClassVar[int]
    started_unix_ns: int
    total_ns: int
    forward_ns: int
    sample_ns: int
    wait_ns: int
    idle_ns: int
    cpu_ns: int
    bubble_ns: int
    def __init__(self, started_unix_ns: _Optional[int] = ..., total_ns: _Optional[int] = ..., forward_ns: _Optional[int] = ..., sample_ns: _Optional[int] = ..., wait_ns: _Optional[int] = ..., idle_ns: _Optional[int] = ..., cpu_ns: _Optional[int] = ..., bubble_ns: _Optional[int] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("name", "vocab_size", "max_model_len", "tokenizer_fingerprint", "dtype", "eos_token_ids", "block_size", "num_blocks", "drafter_kind", "weights_fingerprint", "kernels", "quantisation", "device", "num_spare_threads")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_KIND_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    QUANTISATION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NUM_SPARE_THREADS_FIELD_NUMBER: _ClassVar[int]
    name: str
    vocab_size: int
    max_model_len: int
    tokenizer_fingerprint: str
    dtype: str
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    block_size: int
    num_blocks: int
    drafter_kind: str
    weights_fingerprint: str
    kernels: str
    quantisation: str
    device: str
    num_spare_threads: int
    def __init__(self, name: _Optional[str] = ..., vocab_size: _Optional[int] = ..., max_model_len: _Optional[int] = ..., tokenizer_fingerprint: _Optional[str] = ..., dtype: _Optional[str] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., block_size: _Optional[int] = ..., num_blocks: _Optional[int] = ..., drafter_kind: _Optional[str] = ..., weights_fingerprint: _Optional[str] = ..., kernels: _Optional[str] = ..., quantisation: _Optional[str] = ..., device: _Optional[str] = ..., num_spare_threads: _Optional[int] = ...) -> None: ...

class WorkerIdentity(_message.Message):
    __slots__ = ("instance_id", "protocol_version", "started_unix_ns", "pid", "version")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    instance_id: str
    protocol_version: int
    started_unix_ns: int
    pid: int
    version: str
    def __init__(self, instance_id: _Optional[str] = ..., protocol_version: _Optional[int] = ..., started_unix_ns: _Optional[int] = ..., pid: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...

class FormLinkRequest(_message.Message):
    __slots__ = ("epoch", "name", "transport", "max_rows", "max_draft_tokens", "q_width", "verifier_address", "timeout_s")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    Q_WIDTH_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    name: str
    transport: LinkTransport
    max_rows: int
    max_draft_tokens: int
    q_width: int
    verifier_address: str
    timeout_s: float
    def __init__(self, epoch: _Optional[int] = ..., name: _Optional[str] = ..., transport: _Optional[_Union[LinkTransport, str]] = ..., max_rows: _Optional[int] = ..., max_draft_tokens: _Optional[int] = ..., q_width: _Optional[int] = ..., verifier_address: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class FormLinkResponse(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: str
    def __init__(self, description: _Optional[str] = ...) -> None: ...

class WorkerUsage(_message.Message):
    __slots__ = ("num_blocks", "num_blocks_used", "rss_bytes", "num_blocks_cached", "num_prefix_hit_tokens", "num_ahead_tokens", "num_ahead_used_tokens", "longest_ahead_wait_ns")
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_CACHED_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFIX_HIT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_AHEAD_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_AHEAD_USED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LONGEST_AHEAD_WAIT_NS_FIELD_NUMBER: _ClassVar[int]
    num_blocks: int
    num_blocks_used: int
    rss_bytes: int
    num_blocks_cached: int
    num_prefix_hit_tokens: int
    num_ahead_tokens: int
    num_ahead_used_tokens: int
    longest_ahead_wait_ns: int
    def __init__(self, num_blocks: _Optional[int] = ..., num_blocks_used: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., num_blocks_cached: _Optional[int] = ..., num_prefix_hit_tokens: _Optional[int] = ..., num_ahead_tokens: _Optional[int] = ..., num_ahead_used_tokens: _Optional[int] = ..., longest_ahead_wait_ns: _Optional[int] = ...) -> None: ...

class LinkLost(_message.Message):
    __slots__ = ("epoch", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SurvivalCurves(_message.Message):
    __slots__ = ("slopes", "biases")
    SLOPES_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    slopes: _containers.RepeatedScalarFieldContainer[float]
    biases: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, slopes: _Optional[_Iterable[float]] = ..., biases: _Optional[_Iterable[float]] = ...) -> None: ...
