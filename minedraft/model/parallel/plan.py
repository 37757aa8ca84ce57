"""Checks transformers' tensor parallel plan for N ranks, before anything is loaded.

Refuses models without a plan, styles that are not implemented here, and head counts that N ranks
cannot share: transformers loads those and fails in the first forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minedraft.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PreTrainedConfig

COLWISE: Final = "colwise"
GATHERED: Final = frozenset({"colwise_gather_output", "colwise_rep"})
ROWWISE: Final = "rowwise"
ROWWISE_SPLIT: Final = frozenset({"rowwise_split_input", "rowwise_rep"})
EMBEDDING: Final = "embedding_rowwise"
PACKED_COLWISE: Final = "packed_colwise"
EXPERTS: Final = "moe_tp_experts"
WHOLE: Final = frozenset({"replicate", "replicated_with_grad_allreduce"})
"""Styles that leave a layer whole on every rank; they differ in training only."""
STYLES: Final = (
    {COLWISE, ROWWISE, EMBEDDING, PACKED_COLWISE, EXPERTS} | GATHERED | ROWWISE_SPLIT | WHOLE
)
_ATTENTION: Final = frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value"})
KEY_VALUE: Final = frozenset({"k_proj", "v_proj"})


@dataclass(frozen=True, slots=True)
class HeadShare:
    """How N ranks share the heads."""

    num_kv_heads: int
    size: int

    @property
    def is_replicated(self) -> bool:
        """Whether there are more ranks than KV heads, so that several ranks hold the same one."""
        return self.num_kv_heads < self.size

    def kv_head(self, rank: int) -> int:
        """Return the KV head of a rank, where heads are replicated: that of its query heads."""
        return rank * self.num_kv_heads // self.size


def check_plan(path: Path, plan: Mapping[str, str]) -> None:
    """Refuse a plan that this sharder does not implement.

    Raises:
        ModelError: there is none, or it names an unknown style.
    """
    if not plan:
        raise ModelError(f"model {path}: transformers has no tensor parallel plan for it")
    for name, style in plan.items():
        if style not in STYLES:
            raise ModelError(f"model {path}: tensor parallel style {style!r} ({name}) is unknown")


def share_heads(path: Path, config: PreTrainedConfig, size: int) -> HeadShare:
    """Check that N ranks can share the model's heads.

    Args:
        path: Of the model, for messages.
        config: Its text config.
        size: Ranks.

    Raises:
        ModelError: they cannot; names the numbers.
    """
    plan = getattr(config, "base_model_tp_plan", None) or {}
    check_plan(path, plan)
    query_heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or query_heads
    split = {
        name.rpartition(".")[2]
        for name, style in plan.items()
        if style == COLWISE and name.rpartition(".")[2] in _ATTENTION
    }
    if not split:  # attention runs whole on every rank
        return HeadShare(size * kv_heads, size)
    if not isinstance(query_heads, int) or not isinstance(kv_heads, int):
        raise ModelError(f"model {path}: tp_size={size}: head counts differ between layers")
    if query_heads % size:
        raise ModelError(
            f"model {path}: tp_size={size} does not divide its {query_heads} query heads "
            f"(Hq={query_heads}, Hkv={kv_heads})"
        )
    can_repeat = size % kv_heads == 0 and split >= KEY_VALUE
    if kv_heads % size and not can_repeat:
        raise ModelError(
            f"model {path}: tp_size={size} neither divides its {kv_heads} KV heads nor is a "
            f"multiple of them (Hq={query_heads}, Hkv={kv_heads})"
        )
    return HeadShare(kv_heads, size)
