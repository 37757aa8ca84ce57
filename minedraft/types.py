"""Plain values that several parts of MineDraft share. Pure: no I/O, no torch, no protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from collections.abc import Mapping

RequestId = NewType("RequestId", str)
"""Name of a request, unique among live ones; the caller's or drawn by the coordinator."""

RowId = NewType("RowId", int)
"""A sequence on the workers, from its opening to its closing. A preempted or re-prefilled request
gets a new row id, so a late answer for the old row is recognized."""


class FinishReason(Enum):
    """Why a sequence ended."""

    STOP = "stop"  # EOS, a stop id or a stop string
    LENGTH = "length"  # max_tokens, or the context is full
    ABORT = "abort"  # the client left or called Abort


class RowError(Enum):
    """Why the verifier cannot continue a row."""

    NON_FINITE = "non_finite"  # the target's logits for its tokens are no distribution


class Acceptance(Enum):
    """Rule by which the verifier accepts draft tokens at temperature > 0 (ADR 0003)."""

    COUPLED = "coupled"  # the target's own position-keyed sample; accept iff equal
    REJECTION = "rejection"  # Leviathan et al. 2023 with a truncated draft distribution


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters of a caller. `minedraft.validation` holds the ranges."""

    temperature: float = 1.0
    """>= 0. 0 (and anything under 1e-5) is greedy."""
    top_k: int = 0
    """Keep the k likeliest tokens; 0 is off."""
    top_p: float = 1.0
    """Keep the smallest set with at least this mass; (0, 1]."""
    min_p: float = 0.0
    """Drop tokens under min_p times the likeliest one's probability; [0, 1]."""
    repetition_penalty: float = 1.0
    """> 0; over prompt and output; 1 is off."""
    presence_penalty: float = 0.0
    """-2..2; over output."""
    frequency_penalty: float = 0.0
    """-2..2; over output."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to logits; token id -> -100..100."""
    max_tokens: int | None = None
    """Most output tokens; None: 16 for text and token prompts, the rest of the context for chat."""
    min_tokens: int = 0
    """No EOS and no stop before this many output tokens."""
    stop: tuple[str, ...] = ()
    """Strings that end the output. The first complete one ends it; of several that end at the same
    character, the first one of this list."""
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    bad_words: tuple[str, ...] = ()
    """Strings whose token sequences never appear in the output."""
    allowed_token_ids: tuple[int, ...] = ()
    """If not empty, the only ids that may appear."""
    seed: int | None = None
    """0..2**64-1; None: drawn by the coordinator and reported."""
    logprobs: int | None = None
    """None: none; n: the chosen token's log-probability and those of the n likeliest (0..20)."""
    n: int = 1
    """Samples of the same prompt; sample i > 0 has a seed derived from (seed, i)."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a model's makers recommend (`generation_config.json`). None: they name no value."""

    temperature: float | None = None
    top_k: int | None = None
    """0 is off."""
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    """Most output tokens; its name in the file is `max_new_tokens`."""


NO_DEFAULTS: Final = SamplingDefaults()


@dataclass(frozen=True, slots=True)
class Speculation:
    """Per-request control of speculation. None of it can change the output."""

    num_draft_tokens: int | None = None
    """k for this request; None: the service's; 0: no speculation."""


@dataclass(frozen=True, slots=True)
class DebugOptions:
    """What benchmarks and tests ask of a test drafter beside a request.

    A coordinator refuses it unless it was started with `--debug-requests`. None of it can change
    the output.
    """

    reference_token_ids: tuple[int, ...] = ()
    """A continuation of the prompt that `synthetic` and `scripted` drafters propose from."""
    synthetic_acceptance: float | None = None
    """Share of reference tokens that a `synthetic` drafter proposes right; None: it proposes its
    model's own tokens."""


@dataclass(frozen=True, slots=True)
class RowParams:
    """`SamplingParams` resolved to token ids, as drafter and verifier need them."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    min_tokens: int = 0
    """Below this many output tokens, `stop_ids` are masked out."""
    stop_ids: tuple[int, ...] = ()
    """EOS ids (unless ignored) and stop_token_ids."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear in the output."""
    allowed_token_ids: tuple[int, ...] = ()
    seed: int = 0
    """0..2**64-1."""
    logprobs: int | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken at every position."""
        return self.temperature < 1e-5  # noqa: PLR2004 the floor that SamplingParams documents


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one emitted position, of the raw target distribution."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    """The n likeliest (id, log-probability), likeliest first."""
    token_bytes: bytes = b""
    """Bytes of the token: part of a character, one, or several. The coordinator fills it for
    callers; empty without a tokenizer, and for padding."""
    top_bytes: tuple[bytes, ...] = ()
    """Of each entry of `top`; empty without a tokenizer."""


SHAPES: Final = ("auto", "fixed")
"""Who chooses batches and drafting: the coordinator from costs, within the mode, or the mode."""
FALLBACKS: Final = ("ngram", "none")
"""What drafts where no drafts come."""
ASSIGNMENTS: Final = ("balanced", "paper")
"""Who joins which batch: batches stay equally large, or MineDraft's own rules."""


@dataclass(frozen=True, slots=True)
class Mode:
    """How requests rotate: AR is (1, m, 0), SD is (1, m, k), PSD is (2, m, k)."""

    num_batches: int
    """Batches in rotation, 1..8."""
    max_batch_size: int
    """Most requests per batch, 1..1024."""
    num_draft_tokens: int
    """Draft tokens per step (k), 0..32."""
    shape: str = "fixed"
    """One of `SHAPES`."""
    policy: str = "fixed"
    """Decides within k how much each step drafts and verifies. In an order: empty, it stays."""

    @property
    def num_slots(self) -> int:
        """Most requests that can be live at once."""
        return self.num_batches * self.max_batch_size

    @property
    def name(self) -> str:
        """`ar`, `sd` or `psd`."""
        if self.num_draft_tokens == 0:
            return "ar"
        return "sd" if self.num_batches == 1 else "psd"


KERNELS: Final = ("auto", "c", "torch")
"""What `--kernels` takes: who computes; auto is c where it can run, else torch."""
MAX_MARGIN: Final = 4.0
"""Largest margin of a draft, in nats: how far its perturbed score may be said to lead."""
MAX_VOCAB_SIZE: Final = 2**22
"""The largest real vocabularies have some 2^18 tokens."""
MAX_MODEL_LEN: Final = 2**24
MAX_EOS_IDS: Final = 256
"""Most ids that end a sequence; real models have up to 5."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A worker's facts about its model; the handshake compares them."""

    name: str
    vocab_size: int
    """Rows of the embedding, padding included."""
    max_model_len: int
    """Most positions, prompt and output together."""
    tokenizer_fingerprint: str
    """SHA-256 of vocabulary and special ids; empty if the directory has no tokenizer."""
    dtype: str
    eos_token_ids: tuple[int, ...] = ()
    block_size: int = 16
    """Tokens a KV block holds."""
    num_blocks: int = 0
    """KV blocks of the verifier's pool; 0 for a drafter, which manages its own."""
    drafter_kind: str = ""
    """`model`, `oracle`, ...; empty for a verifier."""
    weights_fingerprint: str = ""
    """Differs between models with other weights (`fingerprint.weights_fingerprint`)."""
    kernels: str = ""
    """What computes its steps: the maker and what it was built for, such as `c/avx512-bf16`,
    and how many of its layers run as blocks."""
    quantisation: str = ""
    """How the weights are quantised, in a few words; empty if they are not."""
    device: str = ""
    """What its steps run on, such as `cpu AMD EPYC 9454 x2` (threads): durations compare only where
    it is equal."""
    num_spare_threads: int = 0
    """Of a verifier: threads that a wide step has more, on cores of a drafter; 0: none."""
