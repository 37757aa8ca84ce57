"""An embedding that keeps its rows as the checkpoint has them and widens those it looks up.

One that the head is tied to keeps none: it reads the head's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.interface import Stored


class StoredEmbedding(nn.Module):
    """Looks rows up, widens them, and does with them what its embedding does (gemma scales).

    Args:
        embedding: Any subclass whose forward reads rows of its weight.
        dtype: Of the activations.
        tied: The head's weight, which is the embedding's too and has rows; None: its own.
    """

    def __init__(
        self, embedding: nn.Embedding, dtype: torch.dtype, tied: Stored | None = None
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.num_embeddings = embedding.num_embeddings
        self.embedding_dim = embedding.embedding_dim
        self._dtype = dtype
        self._is_plain = type(embedding) is nn.Embedding
        self._tied = tied
        if tied is not None:
            embedding.weight = nn.Parameter(embedding.weight[:0].clone(), requires_grad=False)

    def forward(self, token_ids: Tensor) -> Tensor:
        """[...] int64 -> [..., hidden] in the activations' dtype, of nobody else."""
        if self._tied is None:
            rows = F.embedding(token_ids, self.embedding.weight)
        else:
            rows = self._tied.rows(token_ids.flatten()).view(*token_ids.shape, -1)
        rows = rows.to(self._dtype)
        if self._is_plain:
            return rows
        places = torch.arange(token_ids.numel(), device=token_ids.device).view(token_ids.shape)
        weight = {"weight": rows.flatten(0, -2)}
        return cast("Tensor", functional_call(self.embedding, weight, (places,)))


def store_embeddings(
    model: nn.Module, dtype: torch.dtype, tied: tuple[nn.Embedding, Stored] | None = None
) -> None:
    """Replace embeddings that are narrower than the activations or need no rows, in place.

    Args:
        model: Its linear layers are stored already.
        dtype: Of the activations.
        tied: The embedding whose rows the stored head has, and the head's weight.
    """
    shared, head = tied or (None, None)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child is shared:
                setattr(parent, name, StoredEmbedding(child, dtype, head))
            elif isinstance(child, nn.Embedding) and child.weight.dtype != dtype:
                setattr(parent, name, StoredEmbedding(child, dtype))
