"""Settings of a verifier process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from minedraft.errors import ConfigError
from minedraft.security.address import check_dial, check_listen
from minedraft.security.config import SecurityConfig
from minedraft.services.verifier.rank_cores import rank_cores
from minedraft.types import Acceptance


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """What one verifier needs."""

    model: str
    """Directory or hub id of the target: safetensors and tokenizer."""
    listen: str = "127.0.0.1:50052"
    """Where the coordinator and drafters connect, `host:port`; port 0: a free one."""
    health_listen: str | None = None
    """Where health is answered, in plaintext, `host:port`; not given: nowhere."""
    dtype: str = "float32"
    """`float32` or `bfloat16`."""
    num_blocks: int = 1024
    """KV blocks of the pool."""
    block_size: int = 16
    """Tokens a block holds."""
    acceptance: str = "coupled"
    """`coupled`: the seed fixes the output; or `rejection`: above temperature 0 drafts have a say
    in it, though not in its distribution."""
    device: str = "cpu"
    """Where the model runs: `cpu`, `cuda`, `cuda:1`, ..."""
    cpus: str = ""
    """Cores for the device thread, as taskset writes them ("1", "0-3,8"); empty: any. With ranks
    they are split evenly, or named for each rank as "0-3;4-7"."""
    threads: int = 1
    """Threads torch may use, in each rank."""
    tp_size: int = 1
    """Ranks that share the target by tensor parallelism, each a process with a device thread."""
    tp_timeout_s: float = 30.0
    """Seconds one exchange between ranks may take; then the verifier ends with all its ranks."""
    link_address: str = ""
    """`host:port` where drafters reach this verifier; empty: the address the coordinator dials."""
    link_bind_host: str = "127.0.0.1"
    """Address a gloo link listens on."""
    grace_s: float = 5.0
    """Seconds a session gets to end on SIGTERM."""
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        check_listen("listen", self.listen)
        check_listen("health_listen", self.health_listen or self.listen)
        if self.link_address:
            check_dial("link_address", self.link_address)
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
        if self.tp_size < 1:
            raise ConfigError(f"tp_size={self.tp_size}, want >= 1")
        if not self.tp_timeout_s > 0:
            raise ConfigError(f"tp_timeout_s={self.tp_timeout_s}, want > 0")
        if self.tp_size > 1 and self.device.startswith("cuda:"):
            raise ConfigError(f"device={self.device!r}: ranks take one GPU each, want 'cuda'")
        rank_cores(self.cpus, self.tp_size)
        if self.acceptance not in {rule.value for rule in Acceptance}:
            raise ConfigError(f"acceptance={self.acceptance!r}, want 'coupled' or 'rejection'")
