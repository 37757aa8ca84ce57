"""Cuts a loaded model to the slices of one rank, by the model's tensor parallel plan, in place.

Slices are even where N divides and differ by one feature where it does not (vocabulary, MLP); heads
are never cut. Refuses what `plan` refuses, and layers of another kind than their style expects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from minedraft.errors import ModelError
from minedraft.model.parallel import plan as styles
from minedraft.model.parallel.layers import (
    GatheredLinear,
    SplitLinear,
    SummedEmbedding,
    SummedLinear,
    sum_output,
)
from minedraft.model.parallel.plan import HeadShare, check_plan

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

    from minedraft.model.parallel.group import RankGroup


def shard_model(
    path: Path, model: PreTrainedModel, heads: HeadShare, group: RankGroup, *, is_exact: bool
) -> GatheredLinear | None:
    """Replace the model's layers by those of this rank.

    Args:
        path: Of the model, for messages.
        model: Whole and dense; its weights are released where slices replace them.
        heads: From `share_heads`.
        group: The ranks.
        is_exact: Split every product by outputs, so that kernels which sum in one order give the
            bits of one rank; else add partial sums, which takes half the exchanges. Experts add
            partial sums either way.

    Returns:
        The head, if it is split: set its `everywhere` to False once only rank 0 needs logits.

    Raises:
        ModelError: the plan cannot be carried out; names the layer.
    """
    plan = model.tp_plan
    check_plan(path, plan)
    head = model.get_output_embeddings()
    sharder = _Sharder(
        path, heads, group, is_exact=is_exact, tied=model.get_input_embeddings().weight
    )
    for name, parameter in list(model.named_parameters()):
        style = plan.get(_wildcards(name))
        if style is not None and style not in styles.WHOLE:
            owner, attribute = _owner(model, name)
            setattr(owner, attribute, sharder.parameter(name, parameter, style))
    found: GatheredLinear | None = None
    for name, module in list(model.named_modules()):
        style = plan.get(_wildcards(name))
        if style is None or style in styles.WHOLE:
            continue
        owner, attribute = _owner(model, name)
        sliced = sharder.module(name, module, style, owner)
        if sliced is not module:
            setattr(owner, attribute, sliced)
        if module is head and isinstance(sliced, GatheredLinear):
            found = sliced
    if heads.is_replicated:  # a layer's own eager attention repeats the keys that a rank has
        for module in model.modules():
            groups = getattr(module, "num_key_value_groups", None)
            if isinstance(groups, int):
                module.num_key_value_groups = groups * heads.num_kv_heads // heads.size
    return found


class _Sharder:
    def __init__(
        self, path: Path, heads: HeadShare, group: RankGroup, *, is_exact: bool, tied: Tensor
    ) -> None:
        self._path = path
        self._heads = heads
        self._group = group
        self._is_exact = is_exact
        self._tied = tied
        self._tied_part: nn.Parameter | None = None
        """Return the slice of the embedding; a tied head has the same."""

    def parameter(self, name: str, whole: Tensor, style: str) -> nn.Parameter:
        """Return a slice of a bare parameter: the experts of a layer in one tensor."""
        if style == styles.PACKED_COLWISE:
            first, second = whole.chunk(2, dim=-2)
            span = self._span(first.shape[-2])
            return _frozen(torch.cat([first[..., span, :], second[..., span, :]], dim=-2))
        if style == styles.COLWISE:
            return self._cut(whole, whole.ndim - 2, self._span(whole.shape[-2]))
        if style == styles.ROWWISE:
            return self._cut(whole, whole.ndim - 1, self._span(whole.shape[-1]))
        raise ModelError(f"model {self._path}: style {style!r} on the parameter {name}")

    def module(self, name: str, module: nn.Module, style: str, owner: nn.Module) -> nn.Module:
        """Return the replacement of a module."""
        if style == styles.EXPERTS:
            sum_output(module, self._group)
            return module
        if style == styles.EMBEDDING and isinstance(module, nn.Embedding):
            return self._embedding(module)
        if type(module) is not nn.Linear:
            kind = type(module).__name__
            raise ModelError(f"model {self._path}: style {style!r} on {name}, which is a {kind}")
        if style == styles.COLWISE:
            return self._colwise(name, module, owner)
        if style in styles.GATHERED:
            return self._gathered(module)
        if style == styles.ROWWISE or style in styles.ROWWISE_SPLIT:
            return self._rowwise(module, is_whole=style in styles.ROWWISE_SPLIT)
        raise ModelError(f"model {self._path}: style {style!r} on the layer {name}")

    def _colwise(self, name: str, linear: nn.Linear, owner: nn.Module) -> nn.Linear:
        out_features = linear.out_features
        span = self._span(out_features)
        projection = name.rpartition(".")[2]
        head_dim = getattr(owner, "head_dim", None)
        if projection in styles.KEY_VALUE and self._heads.is_replicated:
            width = out_features // self._heads.num_kv_heads
            head = self._heads.kv_head(self._group.rank)
            span = slice(head * width, (head + 1) * width)
        elif isinstance(head_dim, int) and (span.start % head_dim or span.stop % head_dim):
            raise ModelError(
                f"model {self._path}: tp_size={self._group.size} cuts a head of {name}: "
                f"{out_features} features, {head_dim} a head"
            )
        bias = _bias(linear)
        return _linear(self._cut(linear.weight, 0, span), None if bias is None else bias[span])

    def _gathered(self, linear: nn.Linear) -> GatheredLinear:
        widths = self._widths(linear.out_features)
        span = self._span(linear.out_features)
        weight = self._cut(linear.weight, 0, span)
        bias = _bias(linear)
        bias = None if bias is None else bias[span]
        missing = max(widths) - widths[self._group.rank]
        if missing:  # ranks exchange equal shapes
            weight = _frozen(nn.functional.pad(weight, (0, 0, 0, missing)))
            bias = None if bias is None else nn.functional.pad(bias, (0, missing))
        return GatheredLinear(_linear(weight, bias), widths, self._group)

    def _rowwise(self, linear: nn.Linear, *, is_whole: bool) -> SummedLinear | SplitLinear:
        if self._is_exact:
            span, bias = self._span(linear.out_features), _bias(linear)
            part = _linear(self._cut(linear.weight, 0, span), None if bias is None else bias[span])
            inputs = None if is_whole else self._widths(linear.in_features)
            return SplitLinear(part, inputs, self._widths(linear.out_features), self._group)
        span = self._span(linear.in_features)
        part = _linear(self._cut(linear.weight, 1, span), None)
        return SummedLinear(part, _bias(linear), self._group, span if is_whole else None)

    def _embedding(self, embedding: nn.Embedding) -> SummedEmbedding:
        span = self._span(embedding.num_embeddings)
        embedding.weight = self._cut(embedding.weight, 0, span)
        embedding.num_embeddings = span.stop - span.start
        embedding.padding_idx = None  # matters to gradients only, and may be another rank's
        return SummedEmbedding(embedding, span.start, self._group)

    def _span(self, features: int, rank: int | None = None) -> slice:
        rank = self._group.rank if rank is None else rank
        size = self._group.size
        if features < size:
            raise ModelError(f"model {self._path}: tp_size={size} ranks for {features} features")
        return slice(rank * features // size, (rank + 1) * features // size)

    def _widths(self, features: int) -> list[int]:
        """Features of every rank."""
        spans = [self._span(features, rank) for rank in range(self._group.size)]
        return [span.stop - span.start for span in spans]

    def _cut(self, whole: Tensor, dim: int, span: slice) -> nn.Parameter:
        if whole is self._tied and self._tied_part is not None:
            return self._tied_part
        part = whole.detach().narrow(dim, span.start, span.stop - span.start)
        cut = _frozen(part.clone(memory_format=torch.contiguous_format))
        if whole is self._tied:
            self._tied_part = cut
        return cut


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=False)


def _linear(weight: nn.Parameter, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = weight
    if bias is not None:
        linear.bias = _frozen(bias.clone())
    return linear


def _bias(linear: nn.Linear) -> Tensor | None:
    # torch's stub says the bias is never None.
    bias = cast("Tensor | None", linear.bias)
    return None if bias is None else bias.detach()


def _wildcards(name: str) -> str:
    """`model.layers.3.mlp` -> `model.layers.*.mlp`, as plans write it."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    parent, _, attribute = name.rpartition(".")
    return model.get_submodule(parent), attribute
