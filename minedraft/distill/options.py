"""Options of a distillation; the defaults made models/smollm2-135m-drafter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillOptions:
    """Settings of `minedraft.distill.run_distill`."""

    target: Path
    """Complete model directory; its tokenizer and chat template are used."""
    output: Path
    """Gets config.json and model.safetensors (layers and final norm only), ``answers/`` and
    ``complete/`` (a directory that loads like any model). Made if missing."""
    layers: tuple[int, ...] = ()
    """Target layers to start from, ascending; empty: the first three and the last."""
    max_new_tokens: int = 200
    """Most tokens per answer."""
    max_prompt_tokens: int = 512
    """Most tokens per prompt; longer ones are dropped."""
    generation_batch: int = 16
    """Prompts per generation batch."""
    greedy_share: float = 0.6
    """Share of the answers that are greedy, 0..1; the others are sampled."""
    temperature: float = 0.7
    """Temperature of the sampled answers, > 0."""
    num_logprobs: int = 32
    """Log-probabilities of the target kept at every position, 1..1024."""
    soft_share: float = 0.6
    """Weight of the cross-entropy to the kept distribution, 0..1; the rest is the top token's."""
    epochs: float = 3.4
    """Passes over the answers, > 0."""
    tokens_per_batch: int = 3500
    """Tokens per training batch, without padding."""
    peak_learning_rate: float = 1e-3
    warmup_steps: int = 20
    seed: int = 0
    """0..2**63-1; same machine, same options, same drafter."""
    device: str = "cpu"
    assemble: bool = True
    """Also write ``complete/``."""

    def __post_init__(self) -> None:
        ranges = {
            "max_new_tokens": self.max_new_tokens >= 1,
            "max_prompt_tokens": self.max_prompt_tokens >= 1,
            "generation_batch": self.generation_batch >= 1,
            "greedy_share": 0 <= self.greedy_share <= 1,
            "temperature": 0 < self.temperature < float("inf"),
            "num_logprobs": 1 <= self.num_logprobs <= 1024,  # noqa: PLR2004 (documented above)
            "soft_share": 0 <= self.soft_share <= 1,
            "epochs": 0 < self.epochs < float("inf"),
            "tokens_per_batch": self.tokens_per_batch >= 1,
            "peak_learning_rate": 0 < self.peak_learning_rate < float("inf"),
            "warmup_steps": self.warmup_steps >= 0,
            "seed": 0 <= self.seed < 2**63,
            "layers": list(self.layers) == sorted({layer for layer in self.layers if layer >= 0}),
        }
        for name, is_in_range in ranges.items():
            if not is_in_range:
                raise ConfigError(f"distill {name} {getattr(self, name)!r} is out of range")
