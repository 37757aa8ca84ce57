"""RMS norms and gated activations by the C kernels.

Refuses shapes, dtypes and strides that the kernels would read beyond.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import StateError
from minedraft.model.kernels.c.paged import CODES
from minedraft.model.kernels.interface import Activation

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.c.library import Library
    from minedraft.model.kernels.c.pool import Pool

_KINDS: Final = {Activation.SILU: 0, Activation.GELU_TANH: 1}
"""As src/activation.c has them."""


class Elementwise:
    """What happens to each token by itself.

    Args:
        library: The kernels.
        pool: Their threads; None: the calling thread alone.
        dtype: Of activations, float32 or bfloat16.
    """

    def __init__(self, library: Library, pool: Pool | None, dtype: torch.dtype) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._norm = library.function(
            "md_norm",
            *(pointer, number, pointer, size, size, pointer, pointer, pointer, size, size),
            *(size, size, size, ctypes.c_float, number),
        )
        self._act_mul = library.function(
            "md_act_mul", pointer, number, number, pointer, size, pointer, size, size
        )
        self._threads = None if pool is None else pool.handle
        self._pool = pool  # the threads live as long as what uses them
        self._dtype = dtype
        self._code = CODES[dtype]

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
        return self._norm_rows(x, None, weight, eps, plus_one=plus_one, out=out)

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
        """Add `x` into `residual`, then norm that (see `Kernels`)."""
        return self._norm_rows(x, residual, weight, eps, plus_one=plus_one, out=out)

    def _norm_rows(
        self,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor,
        eps: float,
        *,
        plus_one: bool,
        out: Tensor | None,
    ) -> Tensor:
        T, H = x.shape
        row, feature = x.stride()
        if x.dtype is not self._dtype or feature != 1:
            raise StateError(f"norm of {list(x.shape)} {x.dtype}: want {self._dtype}, features 1")
        if residual is not None:
            self._output(x, H, residual)
            if not residual.is_contiguous():
                raise StateError(f"residual {list(residual.shape)}: not contiguous")
        y = self._output(x, H, out)
        self._norm(
            self._threads, self._code, x.data_ptr(), row, 0,
            None if residual is None else residual.data_ptr(),
            _weight(weight, H), y.data_ptr(), y.stride()[0], 0, T, 1, H, eps, plus_one,
        )  # fmt: skip
        return y

    def norm_heads(self, x: Tensor, weight: Tensor, eps: float, *, plus_one: bool = False) -> None:
        """RMS norm of every head, in place (see `Kernels`)."""
        T, heads, D = x.shape
        token, head, feature = x.stride()
        if x.dtype is not self._dtype or feature != 1:
            raise StateError(f"norm of {list(x.shape)} {x.dtype}: want {self._dtype}, features 1")
        at = x.data_ptr()
        self._norm(
            self._threads, self._code, at, token, head, None, _weight(weight, D),
            at, token, head, T, heads, D, eps, plus_one,
        )  # fmt: skip

    def act_mul(
        self, gate_up: Tensor, activation: Activation, *, out: Tensor | None = None
    ) -> Tensor:
        """activation(gate) * up (see `Kernels`)."""
        T, width = gate_up.shape
        row, feature = gate_up.stride()
        if gate_up.dtype is not self._dtype or feature != 1 or width % 2:
            raise StateError(f"gate and up {list(gate_up.shape)} {gate_up.dtype}: want [T, 2 F]")
        y = self._output(gate_up, width // 2, out)
        if not y.is_contiguous():
            raise StateError(f"output {list(y.shape)}: not contiguous")
        self._act_mul(
            self._threads, self._code, _KINDS[activation], gate_up.data_ptr(), row,
            y.data_ptr(), T, width // 2,
        )  # fmt: skip
        return y

    def _output(self, x: Tensor, width: int, out: Tensor | None) -> Tensor:
        """[T, width] of `x`'s rows."""
        T = x.shape[0]
        if out is None:
            return x.new_empty(T, width)  # half of what torch.empty with a dtype costs
        if out.shape != (T, width) or out.dtype is not self._dtype or out.stride()[1] != 1:
            raise StateError(f"output {list(out.shape)} {out.dtype}: want {[T, width]}")
        return out


def _weight(weight: Tensor, size: int) -> int:
    """Address of a norm's weight."""
    if weight.shape != (size,) or weight.dtype is not torch.float32 or weight.stride() != (1,):
        raise StateError(f"weight {list(weight.shape)} {weight.dtype}: want [{size}] float32")
    return weight.data_ptr()
