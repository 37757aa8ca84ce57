"""Settings of a coordinator process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.errors import ConfigError
from minedraft.packets.spec import Transport
from minedraft.plans import MAX_BATCHES, MAX_DRAFT_TOKENS, MAX_ROWS
from minedraft.security.address import check_dial, check_listen
from minedraft.security.config import SecurityConfig
from minedraft.services.coordinator.workers.discovery import DrafterName
from minedraft.services.coordinator.workers.transport_choice import AUTO

_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What a coordinator needs."""

    listen: str = "127.0.0.1:50050"
    """Where clients connect, `host:port`; port 0: a free one."""
    health_listen: str | None = None
    """Where health is answered, in plaintext, `host:port`; not given: nowhere."""
    verifier: str = "127.0.0.1:50052"
    """`host:port` of the verifier."""
    drafters: tuple[str, ...] = ("127.0.0.1:50051",)
    """`host:port` of each drafter; `dns:host:port` is one at every address of that name, as they
    come and go. Empty: no speculation."""
    tokenizer: str = ""
    """Directory with the target's tokenizer; empty: token ids only."""
    num_batches: int = 2
    """Batches in rotation."""
    max_batch_size: int = 8
    """Most requests in a batch."""
    num_draft_tokens: int = 4
    """Draft tokens a step (k)."""
    max_draft_tokens: int = 16
    """Most that k can be set to while running; sizes the link's packets."""
    max_rows: int = 64
    """Most requests a batch can be set to while running; sizes the link's packets."""
    prefill_budget_tokens: int = 512
    """Most prompt tokens in one verify step."""
    max_waiting_requests: int = 1024
    """Longest waiting queue; a request begins there, so it is the most samples (n) of one too."""
    link: str = AUTO
    """Transport of the token link: `nccl`, `gloo`, `grpc` (`local` in tests), or `auto`: the first
    of these that both ends have, gloo only where drafters reach the verifier over loopback."""
    q_width: int = 32
    """Under acceptance by rejection: tokens of the draft distribution that travel; 1..64."""
    link_timeout_s: float = 30.0
    """Longest the forming of a link may take."""
    step_timeout_s: float = 120.0
    """Longest the verifier may take to answer while a step is in flight; then its session ends
    and its requests begin again. It waits for drafts during a quarter of this at the most."""
    reconnect_s: float = 0.2
    """First pause before a lost worker is dialled, or a link formed, again; up to 30 s later on."""
    debug_requests: bool = False
    """Take the debug options that `bench --synthetic-acceptance` and tests send with a request;
    otherwise a request that has some is refused."""
    grace_s: float = 10.0
    """Seconds running requests get on SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        if self.health_listen:
            check_listen("health_listen", self.health_listen)
        self.security.check_server("listen", self.listen)
        _range("num_batches", self.num_batches, 1, MAX_BATCHES)
        _range("max_rows", self.max_rows, 1, MAX_ROWS)
        _range("max_batch_size", self.max_batch_size, 1, self.max_rows)
        _range("max_draft_tokens", self.max_draft_tokens, 1, MAX_DRAFT_TOKENS)
        _range("num_draft_tokens", self.num_draft_tokens, 0, self.max_draft_tokens)
        _range("prefill_budget_tokens", self.prefill_budget_tokens, 1, 2**20)
        _range("max_waiting_requests", self.max_waiting_requests, 1, 2**20)
        _range("q_width", self.q_width, 1, 64)
        _positive("link_timeout_s", self.link_timeout_s)
        _positive("step_timeout_s", self.step_timeout_s)
        _range("reconnect_s", self.reconnect_s, 0.01, _DAY_S)
        _range("grace_s", self.grace_s, 0.0, _DAY_S)
        links = (AUTO, *(transport.value for transport in Transport))
        if self.link not in links:
            raise ConfigError(f"link={self.link!r}, want one of {', '.join(links)}")
        check_dial("verifier", self.verifier)
        for index, address in enumerate(self.drafters):
            if DrafterName.parse(address) is None:
                check_dial("drafters", address)
            if address in self.drafters[:index]:
                raise ConfigError(f"drafters={address!r}: named twice; a drafter has one member")


def _range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # a NaN is in no range
        raise ConfigError(f"{name}={value}, want {low:g}..{high:g}")


def _positive(name: str, value: float) -> None:
    if not 0 < value <= _DAY_S:
        raise ConfigError(f"{name}={value}, want more than 0 and at most {_DAY_S:g}")
