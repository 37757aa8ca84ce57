"""What a maker of kernels offers: the operations that decoder layers are made of.

Refuses Python lists per row: everything is a tensor on the device, so that a step may be captured
and replayed. Every sum runs in one order, whatever rows, chunks, threads or batch mates a call has;
a maker that cannot promise this (`torch`) says so by `is_invariant`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from minedraft.model.attention import AttentionOptions
    from minedraft.model.draw_rows import DrawKernel
    from minedraft.model.kv_pool import KVPool


class KeyLayout(Enum):
    """How the keys of a block lie in the pool; values are [Hkv, block_size, D] in either."""

    ROWS = "rows"
    """[Hkv, block_size, D]."""
    COLUMNS = "columns"
    """[Hkv, D, block_size], the last padded to 16: a query meets 16 keys with one load. The D of
    values is padded to 16 too."""


class Activation(Enum):
    """Activations of gated MLPs, by transformers' names."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a layer; q, k and v lie side by side, all heads of one width."""

    num_query_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotations of a step's tokens, already scaled; features j and j + R/2 turn together.

    In bfloat16 cosines, sines and each product are rounded, as transformers does.
    """

    cos: Tensor
    """[T, R/2] float32, contiguous; R <= head_dim, features from R on stay as they are."""
    sin: Tensor
    """[T, R/2] float32, contiguous."""


class Step(Protocol):
    """Where the tokens of a step are: m rows packed to T tokens. All int32, contiguous."""

    @property
    def cu_seqlens(self) -> Tensor:
        """[m + 1]: row r feeds packed tokens cu_seqlens[r] to cu_seqlens[r + 1] - 1."""

    @property
    def starts(self) -> Tensor:
        """[m]: position of each row's first token, the number of keys before it."""

    @property
    def table(self) -> Tensor:
        """[m, width]: blocks of each row; entries behind its last block are any valid block."""

    @property
    def slots(self) -> Tensor:
        """[T]: block * block_size + offset, where each token's key and value go."""


class Stored(Protocol):
    """A weight as a maker keeps it. Its memory goes when the last reference goes."""

    @property
    def out_features(self) -> int:
        """Rows of the weight."""

    @property
    def in_features(self) -> int:
        """Columns of the weight."""

    @property
    def num_bytes(self) -> int:
        """Memory of weight and bias."""

    @property
    def has_rows(self) -> bool:
        """Whether `rows` can give rows of the weight back, bit for bit."""

    def rows(self, indices: Tensor) -> Tensor:
        """Rows of the weight, [n] int64 -> [n, in_features] in the weight's dtype, new memory.

        Raises:
            StateError: `has_rows` is False.
        """


class Kernels(Protocol):
    """One maker, for activations of one dtype.

    Activations are `[T, features]`, contiguous, in `dtype`, unless said otherwise. A call reads and
    writes memory that only its own tensors name. `out`, where given, has the shape and dtype of the
    result and is returned; else the result is new. T may be 0.
    """

    @property
    def name(self) -> str:
        """For logs: the maker and what it was built for, such as ``c/avx512``."""

    @property
    def dtype(self) -> torch.dtype:
        """float32 or bfloat16, of activations, keys and values."""

    @property
    def key_layout(self) -> KeyLayout:
        """The layout that `attend` reads; a `KVPool` is made for it."""

    @property
    def is_invariant(self) -> bool:
        """Whether a row's bits depend on nothing but the row: not on T, chunks, mates, threads."""

    @property
    def num_spare(self) -> int:
        """Threads that a wide step has more."""

    def widen(self, *, is_wide: bool) -> None:
        """Compute the next calls on the spare threads too, or not; the bits are the same."""

    @property
    def draw(self) -> DrawKernel | None:
        """Draws the tokens that `sampling` draws, to the bit; None: `sampling` does it in torch."""

    def store(self, weight: Tensor, bias: Tensor | None = None) -> Stored:
        """Take a weight over; the caller may drop its own.

        Args:
            weight: [N, K] in float32 or bfloat16, as the checkpoint has it; any strides. A narrower
                dtype than `dtype` is widened exactly where it is used.
            bias: [N] likewise.
        """

    def store_groups(
        self, codes: Tensor, scales: Tensor, offsets: Tensor, bits: int, bias: Tensor | None = None
    ) -> Stored:
        """Take an integer weight over: code * scale + offset, widened where it is used.

        Args:
            codes: uint8, [N, K] of 8 bits or [N, K / 2] of 4, inputs of even index in the low
                halves.
            scales: [N, K / group] float32; a group is a multiple of 8 inputs.
            offsets: [N, K / group] float32: minus the zero point times the scale.
            bits: 4 or 8.
            bias: [N], float32 or bfloat16.
        """

    def linear(
        self, x: Tensor, stored: Stored, *, add_to: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Multiply: x w^T + bias, summed in float32 and rounded once.

        Args:
            x: [T, K]; rows may be strided, features are contiguous.
            stored: Of `store`, [N, K].
            add_to: [T, N], the residual: the product is added into it, rounded once. It is
                returned; `out` is not given then.
            out: [T, N].
        """

    def norm(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        *,
        plus_one: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """RMS norm: x / sqrt(mean(x^2) + eps) * weight, summed in float32.

        In bfloat16 it rounds where transformers does: behind the weight, and unless `plus_one`
        before it too.

        Args:
            x: [T, H]; rows may be strided.
            weight: [H] float32.
            eps: Of the layer.
            plus_one: Multiply by 1 + weight (gemma).
            out: [T, H]; may be `x`.
        """

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
        """Add `x` into `residual` [T, H], in place, then return the norm of it as `norm` does."""

    def norm_heads(self, x: Tensor, weight: Tensor, eps: float, *, plus_one: bool = False) -> None:
        """RMS norm of every head by itself, in place.

        Args:
            x: [T, heads, D]; tokens may be strided, the rest is contiguous.
            weight: [D] float32.
            eps: Of the layer.
            plus_one: Multiply by 1 + weight.
        """

    def rope_write(
        self, qkv: Tensor, rope: Rope, pool: KVPool, layer: int, step: Step, *, heads: Heads
    ) -> None:
        """Rotate the queries in place; rotate the keys into the pool; copy the values there.

        Args:
            qkv: [T, (Hq + 2 Hkv) * D]: queries, keys, values. The keys' part may be overwritten.
            rope: Of these tokens.
            pool: Of this maker's `key_layout` and `dtype`.
            layer: Index in the pool.
            step: Of these tokens.
            heads: Of the layer.
        """

    def write(self, key: Tensor, value: Tensor, pool: KVPool, layer: int, step: Step) -> None:
        """Copy keys and values into the pool, for layers that keep their own forward.

        Args:
            key: [T, Hkv, Dk]; any strides.
            value: [T, Hkv, Dv]; any strides.
            pool: As in `rope_write`.
            layer: Index in the pool.
            step: Of these tokens.
        """

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
        """Causal attention of each row over its own blocks, the step's own keys among them.

        A key that a query may not see never enters its sums, not even as 0 * NaN.

        Args:
            query: [T, Hq, Dk]; tokens and heads may be strided, features are contiguous.
            pool: With this step's keys and values written.
            layer: Index in the pool.
            step: Of these tokens.
            options: Scaling, sliding window, soft cap.
            out: [T, Hq * Dv].

        Returns:
            [T, Hq * Dv].
        """

    def act_mul(
        self, gate_up: Tensor, activation: Activation, *, out: Tensor | None = None
    ) -> Tensor:
        """activation(gate) * up; in bfloat16 rounded behind the activation, as in transformers.

        Args:
            gate_up: [T, 2 F]: gates, then ups.
            activation: Of the MLP.
            out: [T, F].

        Returns:
            [T, F].
        """
