"""Which GGUF architecture serves which model, and how its tensors differ from transformers' own.

Refuses architectures that were not checked. The names of tensors themselves are the gguf library's.
No torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from minedraft.model_files.json_file import refusal

if TYPE_CHECKING:
    import numpy.typing as npt

    from minedraft.model_files.gguf_header import GgufHeader
    from minedraft.model_files.json_file import JsonObject

_ARCHITECTURES: Final = {
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "llama": "llama",
    "mistral": "llama",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
"""`model_type` to llama.cpp's name."""
ROTARY_PAIRS_INTERLEAVED: Final = frozenset({"llama"})
"""llama.cpp stores the rows of q and k of these in its own rotary order (see `rotary_order`)."""
NORMS_PLUS_ONE: Final = frozenset({"gemma2", "gemma3"})
"""llama.cpp adds the 1 of gemma's norms to their weights."""
DERIVED: Final = frozenset(
    {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
)
"""Tensors that repeat what config.json says."""


def check_architecture(config: JsonObject, header: GgufHeader) -> None:
    """Compare the architectures of config.json and of a GGUF file beside it.

    Raises:
        ModelError: Not served, or not the same; names both.
    """
    kind = config.text("model_type")
    if kind not in _ARCHITECTURES:
        raise refusal(config.path, "model_type", kind,
                      f"one of {', '.join(_ARCHITECTURES)} for weights in GGUF")  # fmt: skip
    if header.architecture != _ARCHITECTURES[kind]:
        raise refusal(header.path, "general.architecture", header.architecture,
                      f"{_ARCHITECTURES[kind]!r}, that of model_type {kind!r}")  # fmt: skip


def rotary_order(num_rows: int, num_heads: int) -> npt.NDArray[np.int64]:
    """Return which row of llama.cpp's q or k is each row of transformers' own.

    llama.cpp rotates neighbouring rows (2i, 2i+1) of a head, transformers rows (i, i + d/2).
    Without this the model loads and speaks nonsense.

    Args:
        num_rows: num_heads * d.
        num_heads: Heads the rows belong to.
    """
    pairs = np.arange(num_rows).reshape(num_heads, -1, 2)
    return pairs.swapaxes(1, 2).reshape(-1)
