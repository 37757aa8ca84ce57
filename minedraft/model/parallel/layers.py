"""Layers of one rank: a slice of the weight, and the collective that joins the slices.

Linear slices stay plain `nn.Linear`s, alone or inside these modules, so that the loader hands them
to the kernels as it does those of a whole model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from minedraft.model.blocks.stored_linear import StoredLinear
    from minedraft.model.parallel.group import RankGroup


class SummedLinear(nn.Module):
    """A linear layer whose input features are split over ranks.

    Args:
        linear: This rank's columns of the weight, without bias.
        bias: [out] of the whole layer, added once, after the sum; or None.
        group: The ranks.
        take: The slice of the input that is this rank's; None: the input is already its slice.
    """

    def __init__(
        self, linear: nn.Module, bias: Tensor | None, group: RankGroup, take: slice | None = None
    ) -> None:
        super().__init__()
        self.linear = linear
        # A parameter, so that it moves to the device with the rest.
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self._group = group
        self._take = take

    def forward(self, x: Tensor) -> Tensor:
        """[..., in / N] (or [..., in] with `take`) -> [..., out], the same on every rank."""
        if self._take is not None:
            x = x[..., self._take]
        out = cast("Tensor", self.linear(x)).contiguous()
        self._group.all_reduce(out)
        return out if self.bias is None else out + self.bias

    def over(self, linear: nn.Module) -> SummedLinear:
        """Return the same layer over another form of its weight."""
        return SummedLinear(linear, self.bias, self._group, self._take)

    def add(self, x: Tensor, residual: Tensor) -> None:
        """Add the product of x [T, in] into the residual [T, out], in place."""
        residual.add_(self(x))


class SplitLinear(nn.Module):
    """A linear layer whose output features are split over ranks, as its input's are.

    Each rank joins the input, then sums its outputs whole: they have the bits of one rank, at the
    cost of one exchange more than a `SummedLinear` has.

    Args:
        linear: This rank's rows of the weight.
        input_widths: Input features of every rank; None: the input is whole.
        widths: Output features of every rank.
        group: The ranks.
    """

    def __init__(
        self,
        linear: nn.Module,
        input_widths: Sequence[int] | None,
        widths: Sequence[int],
        group: RankGroup,
    ) -> None:
        super().__init__()
        self.linear = linear
        self._input_widths = None if input_widths is None else tuple(input_widths)
        self._widths = tuple(widths)
        begin = sum(self._widths[: group.rank])
        self._span = slice(begin, begin + self._widths[group.rank])
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        """[..., in / N] -> [..., out], the same on every rank."""
        return _join(cast("Tensor", self.linear(self._whole(x))), self._widths, self._group)

    def over(self, linear: nn.Module) -> SplitLinear:
        """Return the same layer over another form of its weight."""
        return SplitLinear(linear, self._input_widths, self._widths, self._group)

    def add(self, x: Tensor, residual: Tensor) -> None:
        """Add the product of x [T, in / N] into the residual [T, out], in place.

        Each rank adds into its own features, rounded once, as one rank would.
        """
        part = residual[:, self._span].contiguous()
        cast("StoredLinear", self.linear).add(self._whole(x), part)
        residual.copy_(_join(part, self._widths, self._group))

    def _whole(self, x: Tensor) -> Tensor:
        return x if self._input_widths is None else _join(x, self._input_widths, self._group)


class GatheredLinear(nn.Module):
    """A linear layer whose output features are split over ranks and joined again.

    Args:
        linear: This rank's rows of the weight, padded to `max(widths)`.
        widths: Output features of every rank.
        group: The ranks.
    """

    def __init__(self, linear: nn.Linear, widths: Sequence[int], group: RankGroup) -> None:
        super().__init__()
        self.linear = linear
        self.out_features = sum(widths)
        self.everywhere = True
        """False: only rank 0 gets the whole; the others return their slice, which has no reader."""
        self._widths = tuple(widths)
        self._group = group

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        part = cast("Tensor", self.linear(x)).contiguous()
        if part.numel() == 0:  # no tokens, on every rank alike
            return part.new_empty(*part.shape[:-1], self.out_features)
        parts = self._group.all_gather(part) if self.everywhere else self._group.gather(part)
        if parts is None:
            return part
        wanted = [one[..., :width] for one, width in zip(parts, self._widths, strict=True)]
        return torch.cat(wanted, dim=-1)


class SummedEmbedding(nn.Module):
    """An embedding whose vocabulary is split over ranks.

    Args:
        embedding: This rank's rows; may be a subclass that scales.
        first: Token id of its first row.
        group: The ranks.
    """

    def __init__(self, embedding: nn.Embedding, first: int, group: RankGroup) -> None:
        super().__init__()
        self.embedding = embedding
        self._first = first
        self._group = group

    def forward(self, token_ids: Tensor) -> Tensor:
        """[...] int64 -> [..., hidden], the same on every rank."""
        ours = token_ids - self._first
        foreign = (ours < 0) | (ours >= self.embedding.num_embeddings)
        out = cast("Tensor", self.embedding(ours.masked_fill(foreign, 0)))
        out = out.masked_fill(foreign[..., None], 0).contiguous()
        self._group.all_reduce(out)
        return out


def _join(part: Tensor, widths: Sequence[int], group: RankGroup) -> Tensor:
    """[..., own width] of every rank -> [..., sum of the widths]."""
    if part.numel() == 0:  # no tokens, on every rank alike
        return part.new_empty(*part.shape[:-1], sum(widths))
    missing = max(widths) - part.shape[-1]
    parts = group.all_gather(F.pad(part, (0, missing)) if missing else part.contiguous())
    wanted = [one[..., :width] for one, width in zip(parts, widths, strict=True)]
    return torch.cat(wanted, dim=-1)


def sum_output(module: nn.Module, group: RankGroup) -> None:
    """Make a module's output the sum over all ranks."""

    def reduce(_module: nn.Module, _args: object, output: Tensor) -> Tensor:
        output = output.contiguous()
        group.all_reduce(output)
        return output

    module.register_forward_hook(reduce)
