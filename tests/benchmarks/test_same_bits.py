"""What counts as different bits."""

from __future__ import annotations

import pytest

from benchmarks.same_bits import judge

SAME = {"verify 8x5, threads 1": "a", "decode 1x1, threads 2": "a", "decode 1x1, avx2": "a"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "odd",
    ["prefill whole, threads 2", "prefill whole, avx512", "prefill whole, avx512-bf16"],
)
def test_another_hash_in_one_family_differs(dtype, odd):
    assert judge(dtype, {**SAME, odd: "b"}, "avx512-bf16")["differing"] == [odd]


def test_in_bf16_the_tile_unit_is_a_family_of_its_own():
    found = {
        "verify 8x5, threads 1": "a", "verify 8x5, threads 2": "a",
        "verify 8x5, avx512-bf16": "b", "verify 8x5, avx2": "b",
    }  # fmt: skip
    assert judge("bfloat16", found, "avx512-amx")["differing"] == []
    assert judge("bfloat16", found, "avx512-bf16")["differing"] != []
    assert judge("float32", found, "avx512-amx")["differing"] == [
        "verify 8x5, avx512-bf16", "verify 8x5, avx2",
    ]  # fmt: skip
    found["verify 8x5, threads 2"] = "c"
    assert judge("bfloat16", found, "avx512-amx")["differing"] == ["verify 8x5, threads 2"]
