"""Settings of a verifier process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.errors import ConfigError
from minedraft.security.address import check_dial
from minedraft.services.verifier.rank_cores import rank_cores
from minedraft.types import Acceptance
from minedraft.worker.config import WorkerConfig
from minedraft.worker.cores import parse_cores


@dataclass(frozen=True, slots=True)
class VerifierConfig(WorkerConfig):
    """What one verifier needs."""

    listen: str = "127.0.0.1:50052"
    """Where the coordinator and drafters connect. Port 0: a free one."""
    cpus: str = ""
    """Cores of the device thread, as taskset writes them: 1 or 0-3,8. Empty: any. Ranks share them
    evenly, or each has its own: "0-3;4-7"."""
    threads: int = 1
    """Threads of a step in each rank."""
    spare_cpus: str = ""
    """Cores of a drafter on this machine. The coordinator lends them to a step, a thread more
    each, while it has nothing drafted. Needs `--cpus`, and one rank."""
    acceptance: str = "coupled"
    """coupled: the seed fixes the output; or rejection: above temperature 0 drafts have a say in
    it, though not in its distribution."""
    tp_size: int = 1
    """Ranks that share the target by tensor parallelism, each a process with a device thread."""
    tp_timeout_s: float = 30.0
    """Longest exchange between ranks; then the verifier ends with all its ranks."""
    link_address: str = ""
    """Where drafters reach this verifier. Empty: the address that the coordinator dials."""

    def check_own(self) -> None:
        """See `WorkerConfig`."""
        if self.link_address:
            check_dial("link_address", self.link_address)
        if self.tp_size < 1:
            raise ConfigError(f"tp_size={self.tp_size}, want >= 1")
        if not self.tp_timeout_s > 0:
            raise ConfigError(f"tp_timeout_s={self.tp_timeout_s}, want > 0")
        if self.tp_size > 1 and self.device.startswith("cuda:"):
            raise ConfigError(f"device={self.device!r}: ranks take one GPU each, want 'cuda'")
        rank_cores(self.cpus, self.tp_size)
        spare = parse_cores(self.spare_cpus)
        own = parse_cores(self.cpus) if spare and self.tp_size == 1 else None
        if spare and (own is None or spare & own):
            raise ConfigError(
                f"spare_cpus={self.spare_cpus!r}: needs cpus without these, and one rank; cpus is "
                f"{self.cpus!r}, tp_size {self.tp_size}"
            )
        if self.acceptance not in {rule.value for rule in Acceptance}:
            raise ConfigError(f"acceptance={self.acceptance!r}, want 'coupled' or 'rejection'")
