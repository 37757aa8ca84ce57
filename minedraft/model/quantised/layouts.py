"""Turns the tensors of a quantised layer into a `GroupedWeight`, or a dense weight.

One function per layout. Dense are FP8, which has no packed kernel, and layers whose groups do not
lie side by side (act-order). Refuses group indices out of range and shapes that contradict the
header; types and shapes are checked by `model_files.quantised_layers` before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import torch

from minedraft.errors import ModelError
from minedraft.model.quantised.grouped import GroupedWeight, pack_codes
from minedraft.model_files.quantisation import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from minedraft.model_files.quantisation import Quantisation
    from minedraft.model_files.quantised_layers import QuantisedLayer

    Weight: TypeAlias = "GroupedWeight | Tensor"
    Pieces: TypeAlias = Callable[[str], Tensor]
    """A tensor of the layer by its suffix."""

_GROUP_INDICES: Final = ("g_idx", "weight_g_idx")
"""Pieces that name the group of each input."""
_AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where each of eight neighbouring outputs lies within a word, lowest bits first."""


def read_layer(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Weight:
    """Read one layer.

    Args:
        quantisation: From config.json.
        layer: Checked by its headers.
        pieces: Reads a tensor of it.

    Returns:
        [N, K]: grouped, or dense in float32.

    Raises:
        ModelError: A number is out of range; says of which piece.
    """
    readers = {
        Layout.GPTQ: _read_gptq,
        Layout.AWQ: _read_awq,
        Layout.PACKED: _read_packed,
        Layout.INT8: _read_int8,
        Layout.FP8: _read_fp8,
        Layout.FP8_SCALED: _read_fp8_scaled,
    }
    return readers[quantisation.layout](quantisation, layer, pieces)


def is_in_order(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> bool:
    """Whether the inputs of each group lie side by side, so that the layer can stay packed.

    Raises:
        ModelError: An input has a group that is not there.
    """
    found = [piece for piece in _GROUP_INDICES if piece in layer.pieces]
    if not found:
        return True
    group = quantisation.group or layer.in_features
    index = pieces(found[0]).to(torch.int64)
    if int(index.min()) < 0 or int(index.max()) * group >= layer.in_features:
        raise ModelError(
            f"{found[0]} has {int(index.min())} to {int(index.max())}, want groups 0 to "
            f"{layer.in_features // group - 1}"
        )
    return torch.equal(index, torch.arange(layer.in_features) // group)


def unpack_words(words: Tensor, bits: int) -> Tensor:
    """Unpack integers of 32 bits, lowest bits first: [..., n] int32 -> [..., n * 32 / bits] uint8.

    Takes little-endian memory for granted, as safetensors does.
    """
    octets = _octets(words)
    if bits == 8:  # noqa: PLR2004 a byte
        return octets
    return torch.stack((octets & 15, octets >> 4), dim=-1).flatten(-2)


def _octets(words: Tensor) -> Tensor:
    """[..., n] int32 -> [..., 4 n] uint8."""
    # Flat first: a side of one may have any stride, which `view` minds.
    return words.flatten().view(torch.uint8).view(*words.shape[:-1], -1)


def _read_gptq(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Weight:
    bits = quantisation.bits
    # [K / per word, N], packed along K: transposed, the bytes are `GroupedWeight.codes`.
    codes = _octets(pieces("qweight").t())
    zeros = unpack_words(pieces("qzeros"), bits).t().to(torch.float32)
    if quantisation.zeros_less_one:
        zeros = (zeros + 1) % (1 << bits)
    scales = pieces("scales").t().to(torch.float32)
    return _grouped(quantisation, layer, pieces, codes, scales, zeros)


def _read_awq(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Weight:
    codes = pack_codes(_awq_outputs(pieces("qweight")).t(), quantisation.bits)
    zeros = _awq_outputs(pieces("qzeros")).t().to(torch.float32)
    scales = pieces("scales").t().to(torch.float32)
    return _grouped(quantisation, layer, pieces, codes, scales, zeros)


def _awq_outputs(words: Tensor) -> Tensor:
    """[rows, N / 8] int32 -> [rows, N] uint8, in the order of the outputs."""
    codes = unpack_words(words, 4).view(words.shape[0], -1, len(_AWQ_ORDER))
    return codes[..., list(_AWQ_ORDER)].flatten(1)


def _read_packed(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Weight:
    shape = tuple(pieces("weight_shape").tolist())
    if shape != (layer.out_features, layer.in_features):
        raise ModelError(f"weight_shape is {shape}, want {layer.out_features, layer.in_features}")
    bits = quantisation.bits
    middle = float(1 << (bits - 1))  # codes are stored unsigned: the signed ones plus this
    codes = _octets(pieces("weight_packed"))
    scales = pieces("weight_scale").to(torch.float32)
    zeros = torch.full_like(scales, middle)
    if "weight_zero_point" in layer.pieces:
        stored = pieces("weight_zero_point")
        if stored.dtype == torch.int8:
            zeros = stored.to(torch.float32) + middle
        else:
            unsigned = unpack_words(stored.t(), bits).t()[: layer.out_features]
            zeros = unsigned.to(torch.float32)
    return _grouped(quantisation, layer, pieces, codes, scales, zeros)


def _read_int8(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Weight:
    codes = (pieces("weight") ^ -128).view(torch.uint8)  # signed plus 128
    scales = _per_output(pieces("weight_scale"), layer)
    zeros = torch.full_like(scales, 128.0)
    if "weight_zero_point" in layer.pieces:
        zeros += _per_output(pieces("weight_zero_point"), layer)
    return _grouped(quantisation, layer, pieces, codes, scales, zeros)


def _read_fp8(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Tensor:
    return _scaled_blocks(quantisation, layer, pieces, "weight_scale_inv")


def _read_fp8_scaled(quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces) -> Tensor:
    if quantisation.block is not None:
        return _scaled_blocks(quantisation, layer, pieces, "weight_scale")
    scales = _finite(_per_output(pieces("weight_scale"), layer), "weight_scale")
    return pieces("weight").to(torch.float32).mul_(scales)


def _scaled_blocks(
    quantisation: Quantisation, layer: QuantisedLayer, pieces: Pieces, suffix: str
) -> Tensor:
    rows, columns = quantisation.block or (layer.out_features, layer.in_features)
    weight = pieces("weight").to(torch.float32)
    scales = _finite(pieces(suffix).to(torch.float32), suffix)
    wide = scales.repeat_interleave(columns, dim=1)[:, : layer.in_features]
    for block, first in enumerate(range(0, layer.out_features, rows)):
        weight[first : first + rows] *= wide[block]
    return weight


def _per_output(scales: Tensor, layer: QuantisedLayer) -> Tensor:
    """[N, 1] float32, of scales per output or one for all."""
    return scales.to(torch.float32).reshape(-1, 1).expand(layer.out_features, 1).contiguous()


def _finite(scales: Tensor, suffix: str) -> Tensor:
    if not scales.isfinite().all():
        raise ModelError(f"{suffix}: a scale is not a finite number")
    return scales


def _grouped(  # noqa: PLR0917 the pieces of a layer
    quantisation: Quantisation,
    layer: QuantisedLayer,
    pieces: Pieces,
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor,
) -> Weight:
    """Put codes, scales and zero points together.

    Args:
        quantisation: Bits and inputs per scale.
        layer: Of its shape.
        pieces: May have the group of each input.
        codes: As `GroupedWeight` has them.
        scales: [N, groups] float32.
        zeros: [N, groups] float32.
    """
    bits, group = quantisation.bits, quantisation.group or layer.in_features
    offsets = -zeros * scales
    whole = GroupedWeight(codes, scales.contiguous(), offsets.contiguous(), bits, group)
    if is_in_order(quantisation, layer, pieces):
        return whole
    index = next(pieces(name) for name in _GROUP_INDICES if name in layer.pieces).to(torch.int64)
    one, zero = torch.ones(layer.out_features, 1), torch.zeros(layer.out_features, 1)
    weight = GroupedWeight(codes, one, zero, bits, layer.in_features).dequantised()
    return weight.mul_(scales[:, index]).add_(offsets[:, index])
