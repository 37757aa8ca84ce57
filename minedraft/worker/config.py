"""Settings that drafters and verifiers have alike: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.cpu import DTYPES
from minedraft.errors import ConfigError
from minedraft.security.address import check_listen
from minedraft.security.config import SecurityConfig
from minedraft.types import KERNELS


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker needs, whatever its role."""

    model: str
    """Directory or hub id of the model: safetensors and tokenizer."""
    listen: str
    """Where the coordinator connects. Port 0: a free one."""
    health_listen: str | None = None
    """Where to answer health checks, in plaintext. Default: nowhere."""
    dtype: str = "auto"
    """auto, float32 or bfloat16. auto: bfloat16 where this CPU is faster in it, else float32."""
    kernels: str = "auto"
    """Who computes: c, torch, or auto: c where it can run, else torch."""
    num_blocks: int = 1024
    """KV blocks of the pool."""
    block_size: int = 16
    """Tokens per KV block."""
    device: str = "cpu"
    """Where the model runs: cpu, cuda, cuda:1, ..."""
    cpus: str = ""
    """Cores of the device thread, as taskset writes them: 0 or 0-3,8. Empty: any."""
    threads: int = 1
    """Threads of a step."""
    link_bind_host: str = "127.0.0.1"
    """Address that a gloo link listens on."""
    grace_s: float = 5.0
    """Seconds that a session gets to end on SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        if self.health_listen:
            check_listen("health_listen", self.health_listen)
        self.security.check_server("listen", self.listen)
        # gloo itself proves nothing; who may meet there is settled over the control plane.
        self.security.check_server("link_bind_host", self.link_bind_host)
        if not self.model:
            raise ConfigError("model='': name a model's directory or hub id")
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks={self.num_blocks}, want >= 1")
        if not 1 <= self.block_size <= 1024:  # noqa: PLR2004 a block is a page, not a cache
            raise ConfigError(f"block_size={self.block_size}, want 1..1024")
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype={self.dtype!r}: want one of {', '.join(DTYPES)}")
        if self.kernels not in KERNELS:
            raise ConfigError(f"kernels={self.kernels!r}: want one of {', '.join(KERNELS)}")
        if self.threads < 1:
            raise ConfigError(f"threads={self.threads}, want >= 1")
        self.check_own()

    def check_own(self) -> None:
        """Check what only this role has, once the rest is known to be good.

        Raises:
            ConfigError: names the setting and its value.
        """
