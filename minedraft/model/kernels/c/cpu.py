"""Which objects a CPU can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.cpu import this_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping

_AVX2: Final = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512: Final = _AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "avx512-amx": _AVX512 | {"avx512_bf16", "amx_tile", "amx_bf16"},
    "avx512-bf16": _AVX512 | {"avx512_bf16"},
    "avx512": _AVX512,
    "avx2": _AVX2,
    "neon": frozenset({"asimd"}),
}
"""Flags of /proc/cpuinfo that an object needs, the best object first."""


def flags_here() -> frozenset[str]:
    """Return the flags of this machine; none where it does not say."""
    return this_cpu().flags


def runnable(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the instruction sets whose objects a CPU can run, the best first."""
    return tuple(isa for isa, needs in NEEDS.items() if needs <= flags)
