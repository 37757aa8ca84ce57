"""What callers of the public API send and get: requests, events, completions. Pure values.

No protobuf here: `minedraft.transport.public_codec` carries these over the wire. What an operator
looks at (status, modes, spans) is in `minedraft.admin`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.types import DebugOptions, FinishReason, SamplingParams, Speculation, TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_TOKENIZED: Final = 1_000_000
"""Most ids of one call to tokenize or detokenize: what a message carries, at 4 bytes each."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request. Exactly one of `text`, `token_ids` and `messages` is given."""

    text: str | None = None
    """Tokenized by the server with the target's tokenizer and its special tokens."""
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    """Oldest first; formatted with the target's chat template."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    speculation: Speculation = field(default_factory=Speculation)
    request_id: str = ""
    """At most 128 characters, unique among live requests; drawn by the server if empty."""
    resumed: tuple[ResumedSample, ...] = ()
    """What the caller holds of a stream that broke; needs the seed that `Started` reported."""
    parse_special_tokens: bool = False
    """Whether a special token spelled out in `text` is that token, or the characters it is spelled
    with. Contents of messages are characters always."""
    resume_token: bytes = field(default=b"", repr=False)
    """A secret of this request alone, 16..64 bytes. A call that shows it takes the request over; if
    it is empty, no call can."""
    debug: DebugOptions | None = None
    """Benchmarks and tests only; refused by a server that was not started to take it."""
    priority: int = 0
    """-100..100; lower goes first and is preempted last. One that waits ages."""
    cache_salt: str = field(default="", repr=False)
    """At most 128 bytes of UTF-8. Cached prefixes are shared within one salt only."""


@dataclass(frozen=True, slots=True)
class TokenizeOrder:
    """What to tokenize. Exactly one of `text` and `messages` is given."""

    text: str | None = None
    messages: tuple[Message, ...] | None = None
    """Oldest first; formatted with the target's chat template, which writes its special tokens."""
    parse_special_tokens: bool = False
    """Whether a special token spelled out in `text` is that token."""
    add_special_tokens: bool = True
    """Whether the tokenizer adds special tokens around `text`, as around a prompt."""


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """The target's tokenizer, as far as a client formats chats by itself."""

    vocab_size: int
    """Largest id + 1."""
    chat_template: str = ""
    """Jinja source; empty: it has none."""
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    """Name to token: `bos_token`, `eos_token` and their like."""


@dataclass(frozen=True, slots=True)
class ResumedSample:
    """What a caller holds of one sample."""

    index: int
    token_ids: tuple[int, ...]
    """As the deltas brought them."""
    is_finished: bool = False
    """Its `Finished` has arrived."""


@dataclass(frozen=True, slots=True)
class Started:
    """First event of a stream."""

    request_id: str
    """Id to abort by."""
    seed: int
    """Seed in use, drawn by the server if the request had none."""
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Delta:
    """New output of one sample."""

    index: int
    """Sample, 0..n-1."""
    token_ids: tuple[int, ...]
    """Tokens committed since the last delta; never beyond the end of the output."""
    text: str
    """Text that is final; it may lag behind `token_ids` by an unfinished character or a possible
    stop string."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry per token, if the request asked for them."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one sample."""

    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    """Of the prompt tokens, those whose KV came from the prefix cache."""


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """What speculation did for one sample, or for several added together."""

    num_drafts: int = 0
    """Verify steps that carried at least one draft token."""
    num_draft_tokens: int = 0
    """Draft tokens verified."""
    num_accepted_tokens: int = 0
    """Of them accepted."""
    num_steps: int = 0
    """Verify steps, with and without drafts."""
    acceptance_histogram: tuple[int, ...] = ()
    """Entry i: steps with drafts of which i were accepted."""

    @property
    def acceptance_rate(self) -> float:
        """Share of verified draft tokens that were accepted; 0 without drafts."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens a verify step with drafts emits: the accepted ones and one of the target's own."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else 1.0

    def __add__(self, other: SpeculationStats) -> SpeculationStats:
        """Add counts, histograms entry by entry."""
        longest = max(len(self.acceptance_histogram), len(other.acceptance_histogram))
        pairs = (
            (*stats.acceptance_histogram, *([0] * (longest - len(stats.acceptance_histogram))))
            for stats in (self, other)
        )
        return SpeculationStats(
            num_drafts=self.num_drafts + other.num_drafts,
            num_draft_tokens=self.num_draft_tokens + other.num_draft_tokens,
            num_accepted_tokens=self.num_accepted_tokens + other.num_accepted_tokens,
            num_steps=self.num_steps + other.num_steps,
            acceptance_histogram=tuple(a + b for a, b in zip(*pairs, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """Times of one sample at the coordinator."""

    queue_ns: int = 0
    """Arrival to admission."""
    ttft_ns: int = 0
    """Arrival to the first token."""
    e2e_ns: int = 0
    """Arrival to the end."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Last event of a sample."""

    index: int
    reason: FinishReason
    stop_token_id: int | None = None
    """The stop id or EOS that ended the sample, if one did."""
    stop_string: str | None = None
    """The stop string that ended the sample, if one did."""
    usage: Usage = field(default_factory=Usage)
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    timing: RequestTiming = field(default_factory=RequestTiming)


Event = Started | Delta | Finished
"""What a stream consists of: one `Started`, deltas, then one `Finished` per sample."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished sample."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    """One entry per token, if the request asked for them."""
    finish_reason: FinishReason
    stop_token_id: int | None
    stop_string: str | None
    usage: Usage
    speculation: SpeculationStats
    timing: RequestTiming


@dataclass(frozen=True, slots=True)
class Completion:
    """The whole answer to a request: n finished samples, most callers want the first."""

    request_id: str
    seed: int
    """Seed in use; the same request with it gives the same output, with coupled acceptance."""
    num_prompt_tokens: int
    choices: tuple[Choice, ...]
    """By index; at least one."""

    @property
    def text(self) -> str:
        """Text of the first sample."""
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Output token ids of the first sample."""
        return self.choices[0].token_ids

    @property
    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the first sample, if asked for."""
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first sample ended."""
        return self.choices[0].finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        """What stopped the first sample: a token id, a stop string, or neither."""
        choice = self.choices[0]
        return choice.stop_token_id if choice.stop_string is None else choice.stop_string

    @property
    def usage(self) -> Usage:
        """Prompt tokens once, output tokens of all samples, cached tokens that none computed."""
        return Usage(
            self.num_prompt_tokens,
            sum(choice.usage.num_output_tokens for choice in self.choices),
            min(choice.usage.num_cached_tokens for choice in self.choices),
        )

    @property
    def speculation(self) -> SpeculationStats:
        """What speculation did, all samples together."""
        return sum((choice.speculation for choice in self.choices), SpeculationStats())

    @property
    def timing(self) -> RequestTiming:
        """Times of the first sample."""
        return self.choices[0].timing
