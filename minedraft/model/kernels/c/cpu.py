"""What this CPU can run, according to the kernel. Pure but for one file; measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_AVX2: Final = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512: Final = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "avx512-bf16": _AVX512 | {"avx512_bf16"},
    "avx512": _AVX512,
    "avx2": _AVX2,
    "neon": frozenset({"asimd"}),
}
"""Flags of /proc/cpuinfo that an object needs, the best object first."""
CPUINFO: Final = Path("/proc/cpuinfo")


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Read the names of a CPU's units.

    Args:
        cpuinfo: Content of /proc/cpuinfo. The kernel leaves out what it does not save at a switch
            of threads, so a flag that is there can be used.
    """
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in {"flags", "features"}:
            return frozenset(value.split())
    return frozenset()


def flags_here() -> frozenset[str]:
    """`cpu_flags` of this machine; none where it does not say."""
    try:
        return cpu_flags(CPUINFO.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return frozenset()


def runnable(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the instruction sets whose objects a CPU can run, the best first."""
    return tuple(isa for isa, needs in NEEDS.items() if needs <= flags)
