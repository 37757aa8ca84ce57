"""Weights packed for the C kernels, and products with them.

Refuses shapes, dtypes and strides that the kernels would read beyond.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

import torch

from minedraft.errors import StateError

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model.kernels.c.library import Library
    from minedraft.model.kernels.c.pool import Pool

CODES: Final = {torch.float32: 0, torch.bfloat16: 1}
"""dtype codes of src/api.h; also the kinds of storage of src/linear.h."""
PANEL: Final = 16
"""Outputs that lie side by side."""
KINDS_OF_BITS: Final = {8: 2, 4: 3}
"""Kinds of storage of src/linear.h, by bits of a code."""
_LINE_BYTES: Final = 64


class _Weights(ctypes.Structure):
    """`md_stored` of src/linear.h."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("bias_dtype", ctypes.c_int32),
    )


class StoredWeight:
    """A packed weight with its bias, and with scales and offsets where it has codes.

    Args:
        kind: Of storage, of src/linear.h.
        bits: Of one element.
        shape: N, K.
        bias: [N], copied; or None.
        group: Inputs per scale; 0: no codes.
    """

    __slots__ = (
        "_dtype",
        "_memory",
        "_weights",
        "address",
        "has_rows",
        "in_features",
        "num_bytes",
        "out_features",
    )

    def __init__(
        self, kind: int, bits: int, shape: tuple[int, int], bias: Tensor | None, *, group: int = 0
    ) -> None:
        N, K = shape
        panels = -(-N // PANEL)
        packed = torch.empty(panels * -(-K * bits // 32) * _LINE_BYTES, dtype=torch.uint8)
        scales = torch.empty((2, panels * (K // group) * PANEL if group else 0))
        if bias is not None:
            if bias.shape != (N,) or bias.dtype not in CODES:
                raise StateError(f"bias {list(bias.shape)} {bias.dtype}: want [{N}]")
            bias = bias.detach().clone(memory_format=torch.contiguous_format)
        memory = (packed, scales) if bias is None else (packed, scales, bias)
        self.out_features = N
        self.in_features = K
        self.num_bytes = sum(part.nbytes for part in memory)
        self.has_rows = not group
        """See `Stored`; a weight of codes has none."""
        self._dtype = next((dtype for dtype, code in CODES.items() if code == kind), None)
        self._memory = memory
        self._weights = _Weights(
            packed.data_ptr(),
            None if bias is None else bias.data_ptr(),
            scales[0].data_ptr(),
            scales[1].data_ptr(),
            N,
            K,
            group,
            kind,
            0 if bias is None else CODES[bias.dtype],
        )
        self.address = ctypes.addressof(self._weights)
        """Of the structure that the kernels take."""

    def rows(self, indices: Tensor) -> Tensor:
        """See `Stored`: gathered from the panels, in which pairs of bfloat16 lie as one float."""
        if self._dtype is None:
            raise StateError("a weight of codes has no rows")
        flat = self._memory[0].view(self._dtype)
        per_word = 4 // flat.element_size()
        panels = flat.view(-(-self.out_features // PANEL), -1, PANEL, per_word)
        found = panels[indices // PANEL, :, indices % PANEL]
        return found.flatten(1)[:, : self.in_features].contiguous()


class Linear:
    """Products with stored weights: every row has the same bits whatever is computed beside it.

    Args:
        library: The kernels.
        pool: Their threads; None: the calling thread alone.
        dtype: Of activations, float32 or bfloat16.
    """

    def __init__(self, library: Library, pool: Pool | None, dtype: torch.dtype) -> None:
        pointer, size, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._pack = library.function("md_linear_pack", pointer, pointer, pointer, size)
        self._pack_groups = library.function(
            "md_linear_pack_groups", pointer, pointer, pointer, pointer
        )
        self._multiply = library.function(
            "md_linear", pointer, pointer, pointer, size, pointer, size, size, number, number
        )
        self._pool = pool  # the threads live as long as what uses them
        self._threads = None if pool is None else pool.handle
        self._dtype = dtype
        self._code = CODES[dtype]

    def store(self, weight: Tensor, bias: Tensor | None = None) -> StoredWeight:
        """Pack a weight as it is; nothing of it is kept.

        Args:
            weight: [N, K], float32 or bfloat16, any strides.
            bias: [N] likewise.
        """
        if weight.dim() != 2 or weight.dtype not in CODES or 0 in weight.shape:  # noqa: PLR2004
            raise StateError(f"weight {list(weight.shape)} {weight.dtype}: cannot be stored")
        source = weight.detach()
        if source.stride(1) != 1:
            source = source.contiguous()
        size = source.element_size()
        N, K = source.shape
        stored = StoredWeight(CODES[source.dtype], 8 * size, (N, K), bias)
        self._pack(self._threads, stored.address, source.data_ptr(), source.stride(0) * size)
        return stored

    def store_groups(
        self, codes: Tensor, scales: Tensor, offsets: Tensor, bits: int, bias: Tensor | None = None
    ) -> StoredWeight:
        """Pack a weight of codes: code * scale + offset, rounded once to float32 where it is used.

        Args:
            codes: uint8, [N, K] of 8 bits or [N, K / 2] of 4, inputs of even index in the low
                halves.
            scales: [N, K / group] float32. A group is a multiple of 8 inputs.
            offsets: [N, K / group] float32: minus the zero point times the scale.
            bits: 4 or 8.
            bias: [N], float32 or bfloat16.
        """
        if bits not in KINDS_OF_BITS or codes.dim() != 2 or codes.dtype != torch.uint8:  # noqa: PLR2004
            raise StateError(f"codes {list(codes.shape)} {codes.dtype} of {bits} bits")
        N, K = codes.shape[0], codes.shape[1] * 8 // bits
        groups = scales.shape[1] if scales.dim() == 2 and scales.numel() else 1  # noqa: PLR2004
        group = K // groups
        fits = scales.shape == offsets.shape == (N, groups) and group * groups == K and K
        if not fits or group % 8 or {scales.dtype, offsets.dtype} != {torch.float32}:
            raise StateError(
                f"scales {list(scales.shape)} {scales.dtype}, offsets {list(offsets.shape)} "
                f"{offsets.dtype}: want [{N}, {K} / group] float32, group a multiple of 8"
            )
        stored = StoredWeight(KINDS_OF_BITS[bits], bits, (N, K), bias, group=group)
        codes, scales, offsets = codes.contiguous(), scales.contiguous(), offsets.contiguous()
        self._pack(self._threads, stored.address, codes.data_ptr(), codes.shape[1])
        self._pack_groups(self._threads, stored.address, scales.data_ptr(), offsets.data_ptr())
        return stored

    def linear(
        self,
        x: Tensor,
        stored: StoredWeight,
        *,
        add_to: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """Multiply: x w^T + bias, summed in float32, rounded once.

        Args:
            x: [T, K]; rows may be strided, features are contiguous.
            stored: Of `store`.
            add_to: [T, N]: the product is added into it, and it is returned.
            out: [T, N]: written and returned; not with `add_to`.

        Returns:
            [T, N].
        """
        T, K = x.shape
        y = out if add_to is None else add_to
        if y is None:
            y = torch.empty((T, stored.out_features), dtype=self._dtype)
        elif y.shape != (T, stored.out_features) or y.dtype is not self._dtype or y.stride(1) != 1:
            raise StateError(f"output {list(y.shape)} {y.dtype}: want [{T}, {stored.out_features}]")
        if stored.in_features != K or x.dtype is not self._dtype or (x.stride(1) != 1 and K > 1):
            raise StateError(f"input {list(x.shape)} {x.dtype}: want [T, {stored.in_features}]")
        self._multiply(
            self._threads, stored.address, x.data_ptr(), x.stride(0), y.data_ptr(), y.stride(0), T,
            self._code, add_to is not None,
        )  # fmt: skip
        return y
