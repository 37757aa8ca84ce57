"""The headers of quantised layers: what fits is found, and what does not is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.quantisation import Layout, Quantisation
from minedraft.model_files.quantised_layers import find_layers
from minedraft.model_files.weights import TensorFacts

GPTQ = Quantisation("gptq", Layout.GPTQ, 4, 32)
AWQ = Quantisation("awq", Layout.AWQ, 4, 32)
PACKED = Quantisation("compressed-tensors", Layout.PACKED, 4, 32)
INT8 = Quantisation("compressed-tensors", Layout.INT8, 8)
FP8 = Quantisation("fp8", Layout.FP8, 8, block=(48, 40))
# 96 outputs, 64 inputs, beside a norm that is as it is.
HEADERS = {
    GPTQ: {"qweight": ("I32", 8, 96), "qzeros": ("I32", 2, 12), "scales": ("F16", 2, 96),
           "g_idx": ("I32", 64)},
    AWQ: {"qweight": ("I32", 64, 12), "qzeros": ("I32", 2, 12), "scales": ("F16", 2, 96)},
    PACKED: {"weight_packed": ("I32", 96, 8), "weight_scale": ("BF16", 96, 2),
             "weight_shape": ("I64", 2), "weight_zero_point": ("I32", 12, 2)},
    INT8: {"weight": ("I8", 96, 64), "weight_scale": ("F32", 96, 1)},
    FP8: {"weight": ("F8_E4M3", 96, 64), "weight_scale_inv": ("F32", 2, 2)},
}  # fmt: skip


def find(quantisation, **changes):
    pieces = {**HEADERS[quantisation], **changes}
    tensors = {
        f"a.b.{suffix}": TensorFacts(tuple(shape), dtype, 0, 0)
        for suffix, (dtype, *shape) in ((s, piece) for s, piece in pieces.items() if piece)
    }
    tensors["norm.weight"] = TensorFacts((64,), "BF16", 0, 0)
    return find_layers(Path("model"), quantisation, tensors)


@pytest.mark.parametrize("quantisation", HEADERS, ids=lambda q: q.layout.value)
def test_a_layer_is_found_with_its_pieces(quantisation):
    (layer,) = find(quantisation).values()
    assert (layer.name, layer.out_features, layer.in_features) == ("a.b", 96, 64)
    assert layer.pieces == HEADERS[quantisation].keys()


@pytest.mark.parametrize(
    ("quantisation", "changes", "said"),
    [
        (GPTQ, {"qzeros": None}, r"a\.b\.qzeros is missing"),
        (GPTQ, {"scales": ("F16", 2, 95)}, r"a\.b\.scales is F16 of shape \(2, 95\), want"),
        (GPTQ, {"scales": ("I32", 2, 96)}, r"a\.b\.scales is I32 of shape"),
        (GPTQ, {"qweight": ("I32", 9, 96)}, "qweight has 72 features, want a multiple of 32"),
        (GPTQ, {"qweight": ("I32", 8, 95)}, "qweight has 95 features, want a multiple of 8"),
        (GPTQ, {"qweight": ("I32", 0, 96)}, r"qweight has shape \(0, 96\), want rows"),
        (GPTQ, {"qweight": ("I32", 768)}, r"qweight has shape \(768,\), want rows and columns"),
        (GPTQ, {"qweight": ("I64", 8, 96)}, "says gptq, and no tensor is qweight of I32"),
        (GPTQ, {"g_idx": ("I32", 63)}, r"g_idx is I32 of shape \(63,\), want I32 or I64"),
        (AWQ, {"qzeros": ("I32", 3, 12)}, r"qzeros is I32 of shape \(3, 12\)"),
        (AWQ, {"qweight": ("I32", 63, 12)}, "qweight has 63 features, want a multiple of 32"),
        (PACKED, {"weight_shape": None}, "weight_shape is missing"),
        (PACKED, {"weight_scale": ("BF16", 96, 1)}, r"weight_scale is BF16 of shape \(96, 1\)"),
        (PACKED, {"weight_zero_point": ("I32", 96, 2)}, "weight_zero_point is I32 of shape"),
        (PACKED, {"weight_packed": None}, "no tensor is weight_packed"),
        (INT8, {"weight_scale": ("F32", 1, 64)}, "weight_scale is F32"),
        (FP8, {"weight_scale_inv": ("F32", 1, 2)}, r"want F16 or BF16 or F32 or F8_E8M0 of shape"),
        (FP8, {"weight_scale_inv": None}, "weight_scale_inv is missing"),
    ],
)
def test_a_piece_that_does_not_fit_is_refused_by_name(quantisation, changes, said):
    with pytest.raises(ModelError, match=said):
        find(quantisation, **changes)


def test_a_piece_without_its_layer_is_refused():
    tensors = {f"a.{s}": TensorFacts(tuple(p), d, 0, 0) for s, (d, *p) in HEADERS[AWQ].items()}
    tensors["c.scales"] = TensorFacts((2, 96), "F16", 0, 0)
    with pytest.raises(ModelError, match=r"c\.scales belongs to no quantised layer"):
        find_layers(Path("model"), AWQ, tensors)
