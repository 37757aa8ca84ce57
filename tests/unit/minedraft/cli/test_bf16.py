from __future__ import annotations

import pytest

from minedraft.cli.bf16 import slowness, slowness_here

AVX2 = "processor : 0\nflags\t\t: fpu sse2 avx avx2 fma\n"
BF16 = "flags\t\t: fpu avx2 avx512f avx512_bf16\n"
ARM = "Features\t: fp asimd bf16 i8mm\n"


@pytest.mark.parametrize("limit", ["", "DEFAULT", "AVX512_CORE_BF16", "AVX512_CORE_AMX"])
@pytest.mark.parametrize("cpuinfo", [BF16, ARM, "flags : avx2 avx_ne_convert", ""])
def test_a_cpu_that_can_is_not_spoken_of(cpuinfo, limit):
    assert slowness("bfloat16", cpuinfo, {"ONEDNN_MAX_CPU_ISA": limit}) == ""


def test_a_cpu_without_units_is_named_with_what_to_do():
    said = slowness("bfloat16", AVX2, {})
    assert "no units" in said
    assert "--dtype float32" in said
    assert slowness("float32", AVX2, {}) == ""


def test_a_limit_of_the_environment_counts_as_the_cpus():
    assert "ONEDNN_MAX_CPU_ISA=AVX2 forbids" in slowness(
        "bfloat16", BF16, {"ONEDNN_MAX_CPU_ISA": "avx2"}
    )


def test_serve_says_it_and_goes_on(minedraft, monkeypatch, tmp_path):
    monkeypatch.setattr("minedraft.cli.serve.slowness_here", lambda dtype: f"slow: {dtype}")
    result = minedraft(
        "serve", "--target", str(tmp_path), "--dtype", "bfloat16", "--listen=[::1]:0"
    )
    assert "slow: bfloat16" in result.stderr
    assert "needs a drafter" in result.stderr
    assert slowness_here("float32") == ""
