"""What `auto` means is in a table: the same CPU gives the same dtype at every start."""

from __future__ import annotations

import pytest

from minedraft import cpu as module
from minedraft.cpu import DTYPES, Cpu, choose_dtype, parse, remark, this_cpu
from minedraft.errors import ConfigError

AVX2 = (
    "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu avx avx2 fma\n\n"
    "processor\t: 1\nvendor_id\t: Other\ncpu family\t: 1\nflags\t\t: avx512_bf16\n"
)
BF16 = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
ARM = "CPU implementer\t: 0x41\nFeatures\t: fp asimd bf16 i8mm\n"


@pytest.fixture
def gains(monkeypatch):
    """A table of families that a test fills."""
    table = {}
    monkeypatch.setattr(module, "BF16_GAIN", table)
    return table


def test_the_first_processor_is_read():
    assert parse(AVX2) == Cpu("AuthenticAMD", 25, frozenset({"fpu", "avx", "avx2", "fma"}))
    assert parse("model name\t: AMD EPYC 9454 48-Core\n").name == "AMD EPYC 9454 48-Core"
    assert parse(ARM) == Cpu("0x41", 0, frozenset({"fp", "asimd", "bf16", "i8mm"}))


@pytest.mark.parametrize("text", ["", "nonsense", ":::", "cpu family : -1", "cpu family : ٣"])
def test_what_cannot_be_read_is_unknown(text):
    assert parse(text) == Cpu()


def test_a_machine_without_cpuinfo_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "none")
    assert this_cpu() == Cpu()


@pytest.mark.parametrize("text", [AVX2, ""])
def test_without_units_auto_is_float32(gains, text):
    gains["AuthenticAMD", 25] = 3.0
    assert choose_dtype("auto", parse(text), {}) == ("float32", "this CPU has no bf16 units")


def test_a_family_that_was_not_measured_is_float32(gains):
    dtype, why = choose_dtype("auto", parse(BF16), {})
    assert dtype == "float32"
    assert "not measured on GenuineIntel family 6" in why


@pytest.mark.parametrize(("gain", "dtype"), [(1.249, "float32"), (1.25, "bfloat16")])
def test_a_measured_gain_decides(gains, gain, dtype):
    gains["GenuineIntel", 6] = gain
    assert choose_dtype("auto", parse(BF16), {})[0] == dtype


@pytest.mark.parametrize(
    ("name", "value"),
    [("ONEDNN_MAX_CPU_ISA", "avx2"), ("MINEDRAFT_KERNELS_ISA", "avx512")],
)
def test_a_limit_of_the_environment_counts_as_the_cpus(gains, name, value):
    gains["GenuineIntel", 6] = 2.0
    dtype, why = choose_dtype("auto", parse(BF16), {name: value})
    assert dtype == "float32"
    assert f"{name}={value} forbids" in why
    assert f"{name}={value} forbids" in remark("bfloat16", parse(BF16), {name: value})


@pytest.mark.parametrize("value", ["", "DEFAULT", "AVX512_CORE_BF16", "AVX512_CORE_AMX"])
def test_other_limits_do_not_matter(gains, value):
    gains["GenuineIntel", 6] = 2.0
    assert choose_dtype("auto", parse(BF16), {"ONEDNN_MAX_CPU_ISA": value})[0] == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", [AVX2, BF16, ""])
def test_what_is_asked_for_is_taken(dtype, text):
    assert choose_dtype(dtype, parse(text), {}) == (dtype, "")


@pytest.mark.parametrize("dtype", ["", "float16", "AUTO", "bf16"])
def test_another_dtype_is_refused(dtype):
    with pytest.raises(ConfigError, match=f"dtype={dtype!r}: want one of auto, float32, bfloat16"):
        choose_dtype(dtype, Cpu(), {})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", [BF16, ARM, "flags : avx2 avx_ne_convert", ""])
def test_a_cpu_with_units_or_unknown_is_not_spoken_of(dtype, text):
    assert remark(dtype, parse(text), {}) == ""


def test_a_cpu_without_units_is_named_with_what_follows():
    assert "try --dtype auto" in remark("bfloat16", parse(AVX2), {})
    assert "no bf16 units: dtype auto computes in float32" in remark("auto", parse(AVX2), {})
    assert remark("float32", parse(AVX2), {}) == ""
