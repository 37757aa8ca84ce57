"""What this CPU has, according to the kernel, and which dtype `auto` means on it. Measures nothing.

Two starts on one machine decide alike, and so do coordinator, workers and command line: the answer
is in a table of families, not in a timing. Loads no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES: Final = ("auto", "float32", "bfloat16")
"""What `--dtype` takes."""
LEAST_BF16_GAIN: Final = 1.25
"""Speed of bf16 over fp32 arithmetic from which `auto` takes bf16."""
BF16_GAIN: Final[Mapping[tuple[str, int], float]] = {("GenuineIntel", 6): 1.09}
"""Measured speed of bf16 over fp32 arithmetic, both from weights as stored, by vendor and family as
/proc/cpuinfo names them; the least of decoding and verifying (benchmarks/LOG.md). A family that is
not here was not measured: `auto` then takes fp32, whose output is exact as well."""
_UNITS: Final = frozenset({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"})
"""Names of bf16 units in /proc/cpuinfo; the last one is Arm's."""
_CPUINFO: Final = Path("/proc/cpuinfo")
_LIMITS: Final[Mapping[str, frozenset[str]]] = {
    "ONEDNN_MAX_CPU_ISA": frozenset(
        {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"}
    ),
    "MINEDRAFT_KERNELS_ISA": frozenset({"AVX2", "AVX512"}),
}
"""Variables that forbid a library to use the units, and the values that do."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU as /proc/cpuinfo describes it; empty where it does not say."""

    vendor: str = ""
    family: int = 0
    flags: frozenset[str] = frozenset()
    """Names of units. The kernel leaves out what it does not save at a switch of threads, so one
    that is here can be used."""
    name: str = ""
    """Of the model, for people."""


def parse(cpuinfo: str) -> Cpu:
    """Read the first processor of /proc/cpuinfo, of x86-64 or of Arm."""
    found: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip().lower(), value.strip())
    family = found.get("cpu family", "")
    return Cpu(
        vendor=found.get("vendor_id", found.get("cpu implementer", "")),
        family=int(family) if family.isascii() and family.isdigit() else 0,
        flags=frozenset(found.get("flags", found.get("features", "")).split()),
        name=found.get("model name", ""),
    )


def this_cpu() -> Cpu:
    """`parse` of this machine."""
    try:
        return parse(_CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return Cpu()


def choose_dtype(dtype: str, cpu: Cpu, environment: Mapping[str, str]) -> tuple[str, str]:
    """Turn `auto` into the dtype of arithmetic, keys and values on this CPU.

    Args:
        dtype: One of `DTYPES`.
        cpu: Of the machine that computes.
        environment: A variable may forbid the use of the units.

    Returns:
        `float32` or `bfloat16`, and why; the reason is empty if the dtype was asked for.

    Raises:
        ConfigError: not one of `DTYPES`.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype={dtype!r}: want one of {', '.join(DTYPES)}")
    if dtype != "auto":
        return dtype, ""
    if lack := _lack(cpu, environment):
        return "float32", lack
    gain = BF16_GAIN.get((cpu.vendor, cpu.family))
    family = f"{cpu.vendor or 'vendor unknown'} family {cpu.family}"
    if gain is None:
        return "float32", f"bf16 was not measured on {family}"
    if gain < LEAST_BF16_GAIN:
        return "float32", f"bf16 is {gain:.2f} times as fast on {family}, under {LEAST_BF16_GAIN}"
    return "bfloat16", f"bf16 is {gain:.2f} times as fast on {family}"


def choose_dtype_here(dtype: str) -> tuple[str, str]:
    """`choose_dtype` on this machine."""
    return choose_dtype(dtype, this_cpu(), os.environ)


def remark(dtype: str, cpu: Cpu, environment: Mapping[str, str]) -> str:
    """Return what a user should know about `dtype` on a CPU without bf16 units; else nothing."""
    lack = _lack(cpu, environment) if cpu.flags else ""
    if not lack or dtype == "float32":
        return ""
    if dtype == "auto":
        return f"{lack}: dtype auto computes in float32, from weights as the checkpoint has them"
    return f"dtype bfloat16 gains nothing and may be slow: {lack}; try --dtype auto"


def remark_here(dtype: str) -> str:
    """`remark` on this machine."""
    return remark(dtype, this_cpu(), os.environ)


def _lack(cpu: Cpu, environment: Mapping[str, str]) -> str:
    """Say why bf16 units cannot be used; empty: they can."""
    if not cpu.flags & _UNITS:
        return "this CPU has no bf16 units"
    for name, without in _LIMITS.items():
        if (limit := environment.get(name, "")).upper() in without:
            return f"{name}={limit} forbids the bf16 units of this CPU"
    return ""
