"""The CPU maker: every operation by the C kernels, each sum in one order on any threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from minedraft.model.kernels.c.attend import Attention
from minedraft.model.kernels.c.draw import Draw
from minedraft.model.kernels.c.elementwise import Elementwise
from minedraft.model.kernels.c.library import load
from minedraft.model.kernels.c.linear import Linear
from minedraft.model.kernels.c.pool import Pool
from minedraft.model.kernels.interface import KeyLayout

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch
    from torch import Tensor

    from minedraft.model.kernels.c.linear import StoredWeight
    from minedraft.model.kernels.interface import Stored


class CKernels:
    """C on this CPU (see `Kernels`).

    Args:
        dtype: Of activations, keys and values, float32 or bfloat16. Weights stay as stored.
        num_threads: The calling thread among them; the others run where it may run.
        spare: Cores for a thread more each, of wide steps.

    Raises:
        KernelsError: no object for this CPU, or it is refused (`library.load`).
    """

    key_layout = KeyLayout.COLUMNS
    is_invariant = True

    def __init__(self, dtype: torch.dtype, num_threads: int, spare: Collection[int] = ()) -> None:
        library = load()
        pool = Pool(library, num_threads, spare) if num_threads > 1 or spare else None
        self._pool, self._num_threads, self.num_spare = pool, num_threads, len(spare)
        linear = Linear(library, pool, dtype)
        attention = Attention(library, pool, dtype)
        elementwise = Elementwise(library, pool, dtype)
        self.name = f"c/{library.isa}"
        self.dtype = dtype
        self.store = linear.store
        self.store_groups = linear.store_groups
        self._linear = linear.linear
        self.norm = elementwise.norm
        self.add_norm = elementwise.add_norm
        self.norm_heads = elementwise.norm_heads
        self.act_mul = elementwise.act_mul
        self.rope_write = attention.rope_write
        self.write = attention.write
        self.attend = attention.attend
        self.draw = Draw(library, pool)

    def widen(self, *, is_wide: bool) -> None:
        """See `Kernels.widen`."""
        if self._pool is not None and self.num_spare:
            self._pool.use(self._num_threads + self.num_spare * is_wide)

    def linear(
        self, x: Tensor, stored: Stored, *, add_to: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Multiply with a weight that this maker has stored."""
        return self._linear(x, cast("StoredWeight", stored), add_to=add_to, out=out)
