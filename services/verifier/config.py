"""Settings of a verifier process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.errors import ConfigError
from minedraft.security.config import SecurityConfig
from minedraft.types import Acceptance


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """What one verifier needs."""

    model: str
    """Directory or hub id of the target: safetensors and tokenizer."""
    listen: str = "127.0.0.1:50052"
    health_listen: str | None = None
    dtype: str = "float32"
    """`float32` or `bfloat16`."""
    num_blocks: int = 1024
    """KV blocks of the pool."""
    block_size: int = 16
    """Tokens a block holds."""
    acceptance: str = "coupled"
    """`coupled` or `rejection`."""
    device: str = "cpu"
    cpus: str = ""
    """Cores for the device thread, as taskset writes them ("1", "0-3,8"); empty: any."""
    threads: int = 1
    """Threads torch may use."""
    link_address: str = ""
    """`host:port` where drafters reach this verifier; empty: the address the coordinator dials."""
    link_bind_host: str = "127.0.0.1"
    """Address a gloo link listens on."""
    grace_s: float = 5.0
    """Seconds a session gets to end on SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        self.security.check_server("listen", self.listen)
        # gloo itself proves nothing; who may meet there is settled over the control plane.
        self.security.check_server("link_bind_host", self.link_bind_host)
        if not self.model:
            raise ConfigError("model='': name the target's directory or hub id")
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks={self.num_blocks}, want >= 1")
        if not 1 <= self.block_size <= 1024:  # noqa: PLR2004 a block is a page, not a cache
            raise ConfigError(f"block_size={self.block_size}, want 1..1024")
        if self.threads < 1:
            raise ConfigError(f"threads={self.threads}, want >= 1")
        if self.acceptance not in {rule.value for rule in Acceptance}:
            raise ConfigError(f"acceptance={self.acceptance!r}, want 'coupled' or 'rejection'")
