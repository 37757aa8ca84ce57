"""Linear layers with weights that oneDNN reordered once (CPU), single or fused.

Refuses to stay where it does not help: each shape is timed against the dense layer, and a torch
build without these private operators keeps its dense layers.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import structlog
import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

log = structlog.get_logger(__name__)

BATCH_HINT = 40
"""Rows oneDNN is told to expect: a verify step of 8 requests with k = 4. Measured on an AMD EPYC
with AVX512-bf16 at 1..256 rows: in bf16 the hint makes no difference beyond noise; in fp32 weights
packed for 8 or 40 rows beat those packed for 1 at nearly every size (up to 1.8x)."""
FUSED_NAMES = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Projections that read the same input under the same parent, by their usual names."""
_TIMED_ROWS = (1, 40)
_TIMING_REPEATS = 5
_TIMING_LIMIT_S = 0.06
"""Longest time for one shape and one number of rows."""
_DOUBT = 1.1
"""Dense must win by this much: one fp32 shape was once kept dense by noise on a busy machine, and a
choice that flips between starts changes rounding between starts."""
_SMALLEST_TIMED = 1 << 15
"""Weights with fewer elements are packed untimed: the difference is below the timer's noise."""


def _reorder(weight: Tensor) -> Tensor:
    return cast("Tensor", torch.ops.mkldnn._reorder_linear_weight(weight, BATCH_HINT))  # noqa: SLF001 no public way


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return cast("Tensor", torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""))  # noqa: SLF001 no public way


def packing_works(dtype: torch.dtype) -> bool:
    """Try whether this torch build packs and multiplies weights of `dtype` correctly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 96, generator=generator).to(dtype)
    weight = torch.randn(64, 96, generator=generator).to(dtype)
    bias = torch.randn(64, generator=generator).to(dtype)
    try:
        got = _multiply(x, _reorder(weight), bias)
    except (AttributeError, RuntimeError, NotImplementedError) as err:
        log.info("packing.unavailable", dtype=str(dtype), reason=str(err))
        return False
    wanted = F.linear(x.double(), weight.double(), bias.double())
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    return bool(torch.allclose(got.double(), wanted, rtol=tolerance, atol=tolerance * 10))


class PackedLinear(nn.Module):
    """`nn.Linear` with a reordered weight.

    Args:
        weight: [out, in] dense, on CPU; not kept.
        bias: [out] or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # Not buffers: an opaque tensor cannot be moved, cast or saved.
        self._packed = _reorder(weight)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if x.numel() == 0:  # oneDNN has no kernel for no rows
            return x.new_empty(*x.shape[:-1], self.out_features)
        return _multiply(x, self._packed, self.bias)


class FusedLinear:
    """Several projections of one input as one multiplication.

    Args:
        product: Multiplies by the concatenated weights.
        widths: Output features of each projection, in order.
    """

    def __init__(self, product: nn.Module, widths: Sequence[int]) -> None:
        self._product = product
        self._widths = list(widths)
        self._input: Tensor | None = None
        self._parts: tuple[Tensor, ...] = ()

    def part(self, index: int, x: Tensor) -> Tensor:
        """Projection `index` of `x`. The last one lets go of input and outputs.

        The product is kept between the calls of one layer, recognised by the identity of the input
        tensor; a different input is simply multiplied again, so the order of calls does not matter.
        """
        if x is not self._input:
            self._parts = self._product(x).split(self._widths, dim=-1)
            self._input = x
        part = self._parts[index]
        if index == len(self._widths) - 1:
            self._input, self._parts = None, ()
        return part


class FusedPart(nn.Module):
    """Takes the place of one fused projection."""

    def __init__(self, fused: FusedLinear, index: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self._fused = fused
        self._index = index

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return self._fused.part(self._index, x)


def pack_linears(model: nn.Module, *, timed: bool = True) -> int:
    """Replace the linear layers of a CPU model by packed ones, in place.

    A head tied to the embedding is packed from a copy; the embedding stays. Other dense weights
    are released.

    Args:
        model: In eval mode, on CPU, one floating dtype.
        timed: Keep a layer dense where packing its shape measures slower; False: pack all.

    Returns:
        How many linear layers were replaced.
    """
    dtype = next(model.parameters()).dtype
    if not packing_works(dtype):
        return 0
    gains: dict[tuple[int, int, bool], bool] = {}

    def pays(weight: Tensor, bias: Tensor | None) -> bool:
        key = (*weight.shape, bias is not None)
        if key not in gains:
            gains[key] = not timed or packing_pays(weight, bias)
        return gains[key]

    replaced = 0
    for parent in list(model.modules()):
        for names in FUSED_NAMES:
            replaced += _fuse(parent, names, pays)
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and pays(child.weight.detach(), _bias(child)):
                setattr(parent, name, PackedLinear(child.weight.detach(), _bias(child)))
                replaced += 1
    log.debug("packing.done", layers=replaced, shapes={str(k): v for k, v in gains.items()})
    return replaced


def packing_pays(weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the packed weight is faster than the dense one, over decode and verify sizes."""
    if weight.numel() < _SMALLEST_TIMED:
        return True
    packed = PackedLinear(weight, bias)
    dense_s = packed_s = 0.0
    with torch.inference_mode():
        for rows in _TIMED_ROWS:
            x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
            dense_s += _fastest_s(partial(F.linear, x, weight, bias))
            packed_s += _fastest_s(partial(packed, x))
    return packed_s < dense_s * _DOUBT


def _fuse(
    parent: nn.Module, names: Sequence[str], pays: Callable[[Tensor, Tensor | None], bool]
) -> int:
    """Fuse `names` under `parent` if they are plain linears of one input that packing speeds up."""
    linears: list[nn.Linear] = []
    for name in names:
        child = getattr(parent, name, None)
        if type(child) is not nn.Linear:
            return 0
        linears.append(child)
    if len({(linear.in_features, linear.bias is None) for linear in linears}) != 1:
        return 0
    weight = torch.cat([linear.weight.detach() for linear in linears])
    biases = [bias for linear in linears if (bias := _bias(linear)) is not None]
    bias = torch.cat(biases) if biases else None
    if not pays(weight, bias):
        return 0
    widths = [linear.out_features for linear in linears]
    fused = FusedLinear(PackedLinear(weight, bias), widths)
    for index, (name, width) in enumerate(zip(names, widths, strict=True)):
        setattr(parent, name, FusedPart(fused, index, linears[0].in_features, width))
    return len(names)


def _bias(linear: nn.Linear) -> Tensor | None:
    # torch's stub says the bias is never None.
    bias = cast("Tensor | None", linear.bias)
    return None if bias is None else bias.detach()


def _fastest_s(call: Callable[[], Any]) -> float:
    """Return the least CPU time of a few calls; the time of other processes does not count."""
    call()
    best = float("inf")
    spent = 0.0
    for _ in range(_TIMING_REPEATS):
        begin = time.process_time()
        call()
        took = time.process_time() - begin
        best, spent = min(best, took), spent + took
        if spent > _TIMING_LIMIT_S:
            break
    return best
