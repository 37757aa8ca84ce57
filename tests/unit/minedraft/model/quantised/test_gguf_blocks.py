"""GGUF blocks against the gguf library, bit for bit, on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from minedraft.errors import ModelError
from minedraft.model.quantised.gguf_blocks import GROUPED_TYPES, read_blocks, read_bytes
from minedraft.model.quantised.grouped import GroupedWeight
from minedraft.model_files.gguf_header import BLOCKS, PLAIN, GgufTensor, GgufType

_HALVES = {GgufType.Q4_1: (0, 2), GgufType.Q5_1: (0, 2), GgufType.Q4_K: (0, 2),
           GgufType.Q5_K: (0, 2), GgufType.Q6_K: (208,)}  # fmt: skip
"""Where the float16 numbers of a block are; elsewhere at 0."""


def random_bytes(kind, rows=6, blocks=3):
    """Any bytes are a tensor, but for scales that are infinite."""
    octets = np.random.default_rng(0).integers(0, 256, (rows, blocks, BLOCKS[kind][1]), np.uint8)
    for at in _HALVES.get(kind, (0,)):
        octets[..., at + 1] &= 0b10111111
    return octets


def read(kind, octets):
    shape = (octets.shape[0], octets.shape[1] * BLOCKS[kind][0])
    facts = GgufTensor(shape, kind, 0, octets.size)
    return read_blocks(facts, torch.from_numpy(octets.reshape(-1)))


@pytest.mark.parametrize("kind", sorted(set(GgufType) - PLAIN), ids=lambda kind: kind.name)
def test_quantised_blocks_mean_what_the_library_says(kind):
    octets = random_bytes(kind)
    wanted = gguf.dequantize(octets.reshape(len(octets), -1), gguf.GGMLQuantizationType(int(kind)))
    got = read(kind, octets)
    assert isinstance(got, GroupedWeight) == (kind in GROUPED_TYPES)
    dense = got.dequantised() if isinstance(got, GroupedWeight) else got
    assert np.array_equal(dense.numpy(), wanted)


@pytest.mark.parametrize("kind", sorted(set(GgufType) - PLAIN), ids=lambda kind: kind.name)
def test_a_scale_that_is_no_number_is_refused(kind):
    octets = random_bytes(kind)
    at = _HALVES.get(kind, (0,))[0]
    octets[2, 1, at : at + 2] = (0, 0x7C)  # infinity
    with pytest.raises(ModelError, match="not a finite number"):
        read(kind, octets)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (GgufType.F32, torch.float32),
        (GgufType.F16, torch.float16),
        (GgufType.BF16, torch.bfloat16),
    ],
)
def test_plain_tensors_keep_their_type(tmp_path, kind, dtype):
    wanted = torch.randn(3, 5).to(dtype)
    (tmp_path / "x").write_bytes(b"head" + wanted.view(torch.uint8).numpy().tobytes())
    facts = GgufTensor((3, 5), kind, 4, wanted.nbytes)
    assert torch.equal(read_blocks(facts, read_bytes(str(tmp_path / "x"), facts)), wanted)
