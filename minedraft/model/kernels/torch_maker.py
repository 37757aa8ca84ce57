"""Kernels in plain torch: the reference of the other makers, and what serves where they cannot.

Works in any floating dtype, on CPU and CUDA. Promises no order of sums: torch's products choose one
by the number of rows. Chooses nothing by a timing, so two starts give the same bits.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, cast

import structlog
import torch
import torch.nn.functional as F

from minedraft.errors import StateError
from minedraft.model.kernels.interface import Activation, KeyLayout
from minedraft.model.kernels.torch_attention import StepPlan

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.kernels.interface import Heads, Rope, Step, Stored
    from minedraft.model.kv_pool import KVPool

log = structlog.get_logger(__name__)

_BATCH_HINT: Final = 40
"""Rows oneDNN is told to expect: a verify step of 8 requests with k = 4. Measured on an AMD EPYC
with AVX512-bf16 at 1..256 rows: in bf16 the hint makes no difference beyond noise; in fp32 weights
packed for 8 or 40 rows beat those packed for 1 at nearly every size (up to 1.8x)."""


class TorchStored:
    """A weight in the activations' dtype, reordered by oneDNN where this torch build can.

    Args:
        weight: [N, K].
        bias: [N] or None.
        is_packed: Whether to let oneDNN reorder it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, is_packed: bool) -> None:
        self.out_features, self.in_features = weight.shape
        self.num_bytes = weight.nbytes + (0 if bias is None else bias.nbytes)
        self._weight = _reorder(weight) if is_packed else weight
        self._bias = bias
        self._is_packed = is_packed
        self.has_rows = not is_packed
        """See `Stored`; oneDNN's order is its own affair."""

    def rows(self, indices: Tensor) -> Tensor:
        """See `Stored`."""
        if self._is_packed:
            raise StateError("a weight that oneDNN reordered has no rows")
        return self._weight[indices]

    def multiply(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        if not self._is_packed:
            return F.linear(x, self._weight, self._bias)
        if x.shape[0] == 0:  # oneDNN has no kernel for no rows
            return x.new_empty(0, self.out_features)
        return _multiply(x, self._weight, self._bias)


class TorchKernels:
    """Plain torch (see `Kernels`).

    Args:
        dtype: Of activations, keys, values, and of weights as they are kept.
    """

    key_layout = KeyLayout.ROWS
    is_invariant = False
    name = "torch"
    draw = None
    num_spare = 0

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._plan: StepPlan | None = None

    def widen(self, *, is_wide: bool) -> None:
        """Nothing: torch's threads are what they were made."""

    def store(self, weight: Tensor, bias: Tensor | None = None) -> TorchStored:
        """Take a weight over; a copy where the dtype differs or oneDNN reorders it."""
        weight = weight.detach().to(self.dtype)
        bias = None if bias is None else bias.detach().to(self.dtype, copy=True)
        packs = weight.device.type == "cpu" and weight.numel() > 0 and packing_works(self.dtype)
        return TorchStored(weight if packs else weight.contiguous(), bias, is_packed=packs)

    def store_groups(
        self, codes: Tensor, scales: Tensor, offsets: Tensor, bits: int, bias: Tensor | None = None
    ) -> TorchStored:
        """Take an integer weight over, dequantised: torch multiplies nothing narrower."""
        if bits == 4:  # noqa: PLR2004 two codes per byte
            codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
        grouped = codes.view(*scales.shape, -1).to(torch.float32)
        weight = grouped.mul_(scales[..., None]).add_(offsets[..., None])
        return self.store(weight.flatten(1), bias)

    def linear(
        self,
        x: Tensor,
        stored: Stored,
        *,
        add_to: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Multiply (see `Kernels`)."""
        product = cast("TorchStored", stored).multiply(x)
        if add_to is not None:
            return add_to.add_(product)
        return product if out is None else out.copy_(product)

    def norm(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        *,
        plus_one: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """RMS norm (see `Kernels`)."""
        wide = x if self.dtype == torch.float64 else x.float()
        scale = (1.0 + weight).to(wide.dtype) if plus_one else None
        normed = F.rms_norm(wide, (x.shape[-1],), scale, eps).to(self.dtype)
        if not plus_one:
            normed = normed.mul_(weight.to(self.dtype))
        return normed if out is None else out.copy_(normed)

    def add_norm(
        self,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        *,
        plus_one: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """Add, then norm (see `Kernels`)."""
        return self.norm(residual.add_(x), weight, eps, plus_one=plus_one, out=out)

    def norm_heads(self, x: Tensor, weight: Tensor, eps: float, *, plus_one: bool = False) -> None:
        """RMS norm of every head, in place (see `Kernels`)."""
        x.copy_(self.norm(x, weight, eps, plus_one=plus_one))

    def rope_write(
        self, qkv: Tensor, rope: Rope, pool: KVPool, layer: int, step: Step, *, heads: Heads
    ) -> None:
        """Rotate queries and keys, store keys and values (see `Kernels`)."""
        all_heads = qkv.view(qkv.shape[0], -1, heads.head_dim)
        rotated = heads.num_query_heads + heads.num_kv_heads
        half = rope.cos.shape[-1]
        pair = all_heads[:, :rotated, : 2 * half]
        first, second = pair[..., :half], pair[..., half:]
        cos, sin = (x[:, None].to(self.dtype) for x in (rope.cos, rope.sin))
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        pair.copy_(turned)
        key = all_heads[:, heads.num_query_heads : rotated]
        self.write(key, all_heads[:, rotated:], pool, layer, step)

    def write(self, key: Tensor, value: Tensor, pool: KVPool, layer: int, step: Step) -> None:
        """Store keys and values (see `Kernels`)."""
        rows = self._planned(step, pool).pool_rows(key.shape[1])
        pool.write(layer, rows, key, value)

    def attend(
        self,
        query: Tensor,
        pool: KVPool,
        layer: int,
        step: Step,
        options: AttentionOptions,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attend row group by row group (see `Kernels`)."""
        output = self._planned(step, pool).attend(layer, query, pool, options)
        return output if out is None else out.copy_(output)

    def act_mul(
        self, gate_up: Tensor, activation: Activation, *, out: Tensor | None = None
    ) -> Tensor:
        """activation(gate) * up (see `Kernels`)."""
        gate, up = gate_up.chunk(2, dim=-1)
        if activation is Activation.SILU:
            product = F.silu(gate).mul_(up)
        else:
            product = F.gelu(gate, approximate="tanh").mul_(up)
        return product if out is None else out.copy_(product)

    def _planned(self, step: Step, pool: KVPool) -> StepPlan:
        """The plan of a step, kept until the next step: all layers share gathers and masks."""
        if self._plan is None or self._plan.step is not step:
            self._plan = StepPlan(step, pool.block_size)
        return self._plan


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Try whether this torch build packs and multiplies weights of `dtype` correctly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 96, generator=generator).to(dtype)
    weight = torch.randn(64, 96, generator=generator).to(dtype)
    bias = torch.randn(64, generator=generator).to(dtype)
    try:
        got = _multiply(x, _reorder(weight), bias)
    except (AttributeError, RuntimeError, NotImplementedError) as err:
        log.info("packing.unavailable", dtype=str(dtype), reason=str(err).partition("\n")[0])
        return False
    wanted = F.linear(x.double(), weight.double(), bias.double())
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    return bool(torch.allclose(got.double(), wanted, rtol=tolerance, atol=tolerance * 10))


def _reorder(weight: Tensor) -> Tensor:
    return cast("Tensor", torch.ops.mkldnn._reorder_linear_weight(weight, _BATCH_HINT))  # noqa: SLF001 no public way


def _multiply(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return cast("Tensor", torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""))  # noqa: SLF001 no public way
