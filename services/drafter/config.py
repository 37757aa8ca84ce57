"""Settings of a drafter process: frozen, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass

from minedraft.errors import ConfigError
from minedraft.plans import MAX_CATCH_UP_TOKENS
from minedraft.services.drafter.kinds import KINDS
from minedraft.services.drafter.run_ahead import AUTO, parse_run_ahead
from minedraft.worker.config import WorkerConfig


@dataclass(frozen=True, slots=True)
class DrafterConfig(WorkerConfig):
    """What one drafter needs."""

    listen: str = "127.0.0.1:50051"
    """Where the coordinator connects. Port 0: a free one."""
    kind: str = "model"
    """Where drafts come from: model, or synthetic for `bench --synthetic-acceptance`. The other
    kinds are for tests."""
    max_catch_up_tokens: int = 512
    """Most committed tokens fed per step beside drafting. The verifier waits for it: keep it at or
    below the coordinator's `prefill_budget_tokens`."""
    prefix_cache: bool = True
    """Compute what rows have in common at their beginning once."""
    run_ahead: str = AUTO
    """Tokens per row to draw ahead while the target verifies: auto, off or 1..64."""
    model_roots: tuple[str, ...] = ()
    """Directories, with commas, under which a swap may name models. Empty: the parent of the
    model."""

    def check_own(self) -> None:
        """See `WorkerConfig`."""
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r}, want one of {', '.join(KINDS)}")
        if not 1 <= self.max_catch_up_tokens <= MAX_CATCH_UP_TOKENS:
            raise ConfigError(
                f"max_catch_up_tokens={self.max_catch_up_tokens}, want 1..{MAX_CATCH_UP_TOKENS}"
            )
        parse_run_ahead(self.run_ahead)
