"""Settings of a coordinator process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError
from minedraft.packets.spec import Transport
from minedraft.plans import MAX_BATCHES, MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.policy_options import PolicyOptions, check_length, check_policy
from minedraft.security.address import check_dial, check_listen
from minedraft.security.config import SecurityConfig
from minedraft.types import ASSIGNMENTS, FALLBACKS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable

AUTO: Final = "auto"
"""For `link`: the best transport that both ends have."""
METRICS: Final = ("all", "own", "none")
_MAX_PAPER_BATCHES: Final = 2
_DNS: Final = "dns:"
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What a coordinator needs."""

    listen: str = "127.0.0.1:50050"
    """Where clients connect. Port 0: a free one."""
    health_listen: str | None = None
    """Where to answer health checks, in plaintext. Default: nowhere."""
    metrics_listen: str | None = None
    """Where to answer Prometheus, in plaintext, at /metrics. Default: nowhere."""
    metrics: str = METRICS[0]
    """all: by vLLM's names too. own: without. none."""
    verifier: str = "127.0.0.1:50052"
    """Address of the verifier."""
    drafters: tuple[str, ...] = ("127.0.0.1:50051",)
    """Addresses with commas. `dns:HOST:PORT`: one drafter per address of that name, as they come
    and go. Empty: no speculation."""
    tokenizer: str = ""
    """Directory with the target's tokenizer. Empty: token ids only."""
    num_batches: int = 2
    """Number of batches that rotate."""
    max_batch_size: int = 8
    """Most requests per batch."""
    num_draft_tokens: int = 4
    """Draft tokens per step (k)."""
    shape: str = "auto"
    """auto: begin so, then as measured costs say, for as many requests at once. fixed: stay so."""
    policy: str = "fixed"
    """Decides within k: fixed, schedule, goodput, tetris, adaspec, dspark, wcs."""
    policies: PolicyOptions = field(default_factory=PolicyOptions)
    assignment: str = ASSIGNMENTS[0]
    """balanced: batches stay equally large. paper: MineDraft's own rules, with `--shape fixed`."""
    max_draft_tokens: int = 16
    """Largest k that can be set while running."""
    max_rows: int = 64
    """Largest batch that can be set while running."""
    prefill_budget_tokens: int = 512
    """Most prompt tokens per verify step."""
    prefix_cache: bool = True
    """Compute what requests have in common at their beginning once."""
    prefill_stall: float = 1.5
    """Longest step with prompt tokens over one without them, 1..1000."""
    max_waiting_requests: int = 1024
    """Longest queue. It also bounds n: every sample begins there."""
    link: str = AUTO
    """Its transport: nccl, gloo or grpc. `auto`: the first that both ends have,
    gloo only where drafters reach the verifier over loopback."""
    q_width: int = 32
    """Rejection acceptance: tokens sent per draft distribution, 1..64."""
    link_timeout_s: float = 30.0
    """Longest time to form a link."""
    step_timeout_s: float = 120.0
    """Longest wait for the result of a verify step; then the verifier's session ends and its
    requests begin again. A quarter of it bounds the verifier's wait for drafts."""
    reconnect_s: float = 0.2
    """First pause before redialling a lost worker or re-forming a link. Grows to 30 s."""
    fallback: str = "ngram"
    """What drafts where no drafts come: ngram or none."""
    cost_cache: str = ""
    """Directory that keeps what steps cost, and which scores drafts that stand have. Empty: nothing
    is kept."""
    trial_s: float = 10.0
    """Longest device time of trial steps, which measure what steps cost before the first request.
    0: none."""
    debug_requests: bool = False
    """Take requests with debug options, as `bench --synthetic-acceptance` sends them."""
    grace_s: float = 10.0
    """Time for running requests to finish after SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        if self.health_listen:
            check_listen("health_listen", self.health_listen)
        if self.metrics_listen:
            check_listen("metrics_listen", self.metrics_listen)
            if self.metrics == "none":
                raise ConfigError(f"metrics_listen={self.metrics_listen!r}: metrics are none")
        self.security.check_server("listen", self.listen)
        _choice("metrics", self.metrics, METRICS)
        _range("num_batches", self.num_batches, 1, MAX_BATCHES)
        _range("max_rows", self.max_rows, 1, MAX_ROWS)
        _range("max_batch_size", self.max_batch_size, 1, self.max_rows)
        _range("max_draft_tokens", self.max_draft_tokens, 1, MAX_DRAFT_TOKENS)
        _range("num_draft_tokens", self.num_draft_tokens, 0, self.max_draft_tokens)
        _choice("shape", self.shape, SHAPES)
        check_policy(self.policy, self.policies)
        check_length(
            self.policy, self.policies, k=self.num_draft_tokens, most=self.max_draft_tokens
        )
        _choice("assignment", self.assignment, ASSIGNMENTS)
        _choice("fallback", self.fallback, FALLBACKS)
        check_assignment(self.assignment, self.num_batches, self.shape)
        _range("prefill_budget_tokens", self.prefill_budget_tokens, 1, 2**20)
        _range("prefill_stall", self.prefill_stall, 1.0, 1000.0)
        _range("max_waiting_requests", self.max_waiting_requests, 1, 2**20)
        _range("q_width", self.q_width, 1, 64)
        _positive("link_timeout_s", self.link_timeout_s)
        _positive("step_timeout_s", self.step_timeout_s)
        _range("reconnect_s", self.reconnect_s, 0.01, _DAY_S)
        _range("grace_s", self.grace_s, 0.0, _DAY_S)
        _range("trial_s", self.trial_s, 0.0, _DAY_S)
        _choice("link", self.link, (AUTO, *(transport.value for transport in Transport)))
        check_dial("verifier", self.verifier)
        for index, address in enumerate(self.drafters):
            if dns_place(address) is None:
                check_dial("drafters", address)
            if address in self.drafters[:index]:
                raise ConfigError(f"drafters={address!r}: named twice; a drafter has one member")


def check_assignment(assignment: str, num_batches: int, shape: str) -> None:
    """Refuse MineDraft's own rules where they say nothing.

    Raises:
        ConfigError: more than two batches, or a shape that members would have to move for.
    """
    if assignment == "paper" and (shape != "fixed" or num_batches > _MAX_PAPER_BATCHES):
        raise ConfigError(
            f"assignment={assignment!r}: needs shape fixed and at most {_MAX_PAPER_BATCHES} "
            f"batches, not shape {shape} and {num_batches}"
        )


def dns_place(address: str) -> str | None:
    """`host:port` of an address that says `dns:host:port`; None for an address of another form.

    Raises:
        ConfigError: the prefix without host and port.
    """
    if not address.startswith(_DNS):
        return None
    place = address.removeprefix(_DNS).removeprefix("///")
    try:
        check_dial("drafters", place)
    except ConfigError:
        raise ConfigError(f"drafters={address!r}: want dns:host:port") from None
    return place


def _choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r}, want one of {', '.join(choices)}")


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # a NaN is in no range
        raise ConfigError(f"{name}={value}, want {low:g}..{high:g}")


def _positive(name: str, value: float) -> None:
    if not 0 < value <= _DAY_S:
        raise ConfigError(f"{name}={value}, want more than 0 and at most {_DAY_S:g}")
