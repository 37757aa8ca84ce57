"""Turns the blocks of a GGUF tensor into a `GroupedWeight`, or into a dense weight.

Grouped are the types of 4 and 8 bits; the gguf library dequantises those of 5 and 6. Refuses
scales that are no numbers. Shapes and sizes are checked by `model_files.gguf_header` before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gguf
import numpy as np
import torch

from minedraft.errors import ModelError
from minedraft.model.quantised.grouped import GroupedWeight, pack_codes
from minedraft.model_files.gguf_header import BLOCKS, GgufType

if TYPE_CHECKING:
    from torch import Tensor

    from minedraft.model_files.gguf_header import GgufTensor

_SUB_BLOCKS: Final = 8
"""Groups of 32 in a block of Q4_K."""
_GROUP: Final = 32
GROUPED_TYPES: Final = frozenset({GgufType.Q4_0, GgufType.Q4_1, GgufType.Q8_0, GgufType.Q4_K})


def read_blocks(facts: GgufTensor, content: Tensor) -> GroupedWeight | Tensor:
    """Read one tensor.

    Args:
        facts: Of its header.
        content: Its bytes, uint8.

    Returns:
        Of two dimensions and a type of 4 or 8 bits: grouped; else dense, float32, or the float
        type that is stored.

    Raises:
        ModelError: A scale is not a finite number.
    """
    if facts.kind is GgufType.BF16:
        return content.view(torch.bfloat16).view(facts.shape)
    if facts.kind is GgufType.F16:
        return content.view(torch.float16).view(facts.shape)
    if facts.kind is GgufType.F32:
        return content.view(torch.float32).view(facts.shape)
    if len(facts.shape) == 2 and facts.kind in GROUPED_TYPES:  # noqa: PLR2004 rows, columns
        rows = content.view(facts.shape[0], -1, BLOCKS[facts.kind][1])
        return _READERS[facts.kind](rows)
    kind = gguf.GGMLQuantizationType(int(facts.kind))
    with np.errstate(all="ignore"):
        dense = torch.from_numpy(gguf.dequantize(content.numpy(), kind)).view(facts.shape)
    if not dense.isfinite().all():
        raise ModelError("a scale is not a finite number")
    return dense


def _read_q8_0(blocks: Tensor) -> GroupedWeight:
    """[N, blocks, 34]: scale, 32 signed bytes."""
    scales = _halves(blocks[..., :2])
    codes = (blocks[..., 2:] ^ 128).flatten(1)  # signed plus 128
    return GroupedWeight(codes, scales, scales * -128.0, 8, _GROUP)


def _read_q4_0(blocks: Tensor) -> GroupedWeight:
    """[N, blocks, 18]: scale, codes whose zero is 8."""
    scales = _halves(blocks[..., :2])
    return GroupedWeight(_split_halves(blocks[..., 2:]), scales, scales * -8.0, 4, _GROUP)


def _read_q4_1(blocks: Tensor) -> GroupedWeight:
    """[N, blocks, 20]: scale, least, codes."""
    scales, least = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    return GroupedWeight(_split_halves(blocks[..., 4:]), scales, least, 4, _GROUP)


def _read_q4_k(blocks: Tensor) -> GroupedWeight:
    """[N, blocks, 144]: two halves, 8 scales and 8 minima of 6 bits, 256 codes."""
    num_rows = blocks.shape[0]
    scale, least = _halves(blocks[..., 0:2]), _halves(blocks[..., 2:4])
    packed = blocks[..., 4:16].to(torch.uint8)
    low, middle, high = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = torch.cat([low & 63, (high & 15) | ((low >> 6) << 4)], dim=-1)
    minima = torch.cat([middle & 63, (high >> 4) | ((middle >> 6) << 4)], dim=-1)
    # 4 runs of 32 bytes: the low halves are one group, the high halves the next.
    runs = blocks[..., 16:].reshape(num_rows, -1, _SUB_BLOCKS // 2, _GROUP)
    codes = torch.stack((runs & 15, runs >> 4), dim=-2).flatten(1)
    return GroupedWeight(
        pack_codes(codes, 4),
        (scales * scale[..., None]).flatten(1),
        (minima * -least[..., None]).flatten(1),
        4,
        _GROUP,
    )


_READERS: Final = {
    GgufType.Q4_0: _read_q4_0,
    GgufType.Q4_1: _read_q4_1,
    GgufType.Q8_0: _read_q8_0,
    GgufType.Q4_K: _read_q4_k,
}


def _split_halves(octets: Tensor) -> Tensor:
    """[N, blocks, 16], the low halves before the high ones -> [N, blocks * 16] neighbours."""
    codes = torch.cat((octets & 15, octets >> 4), dim=-1)
    return pack_codes(codes.flatten(1), 4)


def _halves(octets: Tensor) -> Tensor:
    """[..., 2] bytes of a float16 -> [...] float32."""
    return octets.contiguous().view(torch.float16).squeeze(-1).to(torch.float32)


def read_bytes(path: str, facts: GgufTensor) -> Tensor:
    """Read the bytes of a tensor, uint8."""
    count = facts.num_bytes
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8, count=count, offset=facts.begin))
