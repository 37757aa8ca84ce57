"""Settings of a drafter process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.errors import ConfigError
from minedraft.security.address import check_listen
from minedraft.security.config import SecurityConfig
from minedraft.services.drafter.kinds import KINDS


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What one drafter needs."""

    model: str
    """Directory or hub id of the draft model: safetensors and tokenizer."""
    listen: str = "127.0.0.1:50051"
    """Where the coordinator connects, `host:port`; port 0: a free one."""
    health_listen: str | None = None
    """Where health is answered, in plaintext, `host:port`; not given: nowhere."""
    kind: str = "model"
    """How it comes by its tokens: `model`; `synthetic` for `bench --synthetic-acceptance`; the
    others are for tests."""
    dtype: str = "float32"
    """`float32` or `bfloat16`."""
    num_blocks: int = 1024
    """KV blocks of the drafter's own pool."""
    block_size: int = 16
    """Tokens a block holds."""
    max_catch_up_tokens: int = 512
    """Most committed tokens fed in one step beside drafting; rows that need more are not drafted
    for until they have caught up. The verifier waits for this step as for any other: feed no more
    than the coordinator's `prefill_budget_tokens`."""
    model_roots: tuple[str, ...] = ()
    """Directories under which a swap may name models; empty: the parent of `model`."""
    device: str = "cpu"
    """Where the model runs: `cpu`, `cuda`, `cuda:1`, ..."""
    cpus: str = ""
    """Cores for the device thread, as taskset writes them ("0", "0-3,8"); empty: any."""
    threads: int = 1
    """Threads torch may use."""
    link_bind_host: str = "127.0.0.1"
    """Address a gloo link listens on."""
    grace_s: float = 5.0
    """Seconds a session gets to end on SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        if self.health_listen:
            check_listen("health_listen", self.health_listen)
        self.security.check_server("listen", self.listen)
        # gloo itself proves nothing; who may meet there is settled over the control plane.
        self.security.check_server("link_bind_host", self.link_bind_host)
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r}, want one of {', '.join(KINDS)}")
        if not self.model:
            raise ConfigError("model='': name the draft model's directory or hub id")
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks={self.num_blocks}, want >= 1")
        if not 1 <= self.block_size <= 1024:  # noqa: PLR2004 a block is a page, not a cache
            raise ConfigError(f"block_size={self.block_size}, want 1..1024")
        if not 1 <= self.max_catch_up_tokens <= 2**20:
            raise ConfigError(f"max_catch_up_tokens={self.max_catch_up_tokens}, want 1..{2**20}")
        if self.threads < 1:
            raise ConfigError(f"threads={self.threads}, want >= 1")
