"""What counts as different bits."""

from __future__ import annotations

import pytest

from benchmarks.same_bits import judge

SAME = {"verify 8x5, threads 1": "a", "decode 1x1, threads 2": "a", "decode 1x1, avx2": "a"}


@pytest.mark.parametrize(
    ("dtype", "odd", "differs"),
    [
        ("float32", "prefill whole, threads 2", True),
        ("float32", "prefill whole, avx512", True),
        ("float32", "prefill whole, avx512-bf16", True),
        ("bfloat16", "prefill whole, threads 2", True),
        ("bfloat16", "prefill whole, avx512-bf16", True),
        ("bfloat16", "prefill whole, avx2", True),
    ],
)
def test_another_hash_in_one_family_differs(dtype, odd, differs):
    found = {**SAME, odd: "b"}
    assert (judge(dtype, found)["differing"] == [odd]) == differs


def test_in_bf16_objects_with_bf16_units_are_a_family_of_their_own():
    found = {
        "verify 8x5, threads 1": "a", "verify 8x5, avx512-bf16": "a",
        "verify 8x5, avx512": "b", "verify 8x5, avx2": "b",
    }  # fmt: skip
    assert judge("bfloat16", found)["differing"] == []
    assert judge("float32", found)["differing"] == ["verify 8x5, avx512", "verify 8x5, avx2"]
