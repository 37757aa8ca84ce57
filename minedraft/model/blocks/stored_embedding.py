"""An embedding that keeps its rows as the checkpoint has them and widens those it looks up."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

if TYPE_CHECKING:
    from torch import Tensor


class StoredEmbedding(nn.Module):
    """Looks rows up, widens them, and does with them what its embedding does (gemma scales).

    Args:
        embedding: Any subclass whose forward reads rows of its weight.
        dtype: Of the activations.
    """

    def __init__(self, embedding: nn.Embedding, dtype: torch.dtype) -> None:
        super().__init__()
        self.embedding = embedding
        self.num_embeddings = embedding.num_embeddings
        self.embedding_dim = embedding.embedding_dim
        self._dtype = dtype
        self._is_plain = type(embedding) is nn.Embedding

    @property
    def weight(self) -> Tensor:
        """The rows as stored."""
        return self.embedding.weight

    def forward(self, token_ids: Tensor) -> Tensor:
        """[...] int64 -> [..., hidden] in the activations' dtype, of nobody else."""
        rows = F.embedding(token_ids, self.embedding.weight).to(self._dtype)
        if self._is_plain:
            return rows
        places = torch.arange(token_ids.numel(), device=token_ids.device).view(token_ids.shape)
        weight = {"weight": rows.flatten(0, -2)}
        return cast("Tensor", functional_call(self.embedding, weight, (places,)))


def store_embeddings(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace embeddings that are narrower than the activations, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Embedding) and child.weight.dtype != dtype:
                setattr(parent, name, StoredEmbedding(child, dtype))
