"""Whether this CPU has bf16 units, according to the kernel. Measures nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = frozenset({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"})
"""Names of the units in /proc/cpuinfo; the last one is Arm's."""
_LIMIT: Final = "ONEDNN_MAX_CPU_ISA"
_LIMITS_WITHOUT: Final = frozenset(
    {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"}
)


def slowness(dtype: str, cpuinfo: str, environment: Mapping[str, str]) -> str:
    """Return a warning about `dtype` on this CPU; empty: there is none.

    Args:
        dtype: `float32` or `bfloat16`.
        cpuinfo: Content of /proc/cpuinfo; empty: unknown.
        environment: A variable may forbid oneDNN to use the units.
    """
    if dtype != "bfloat16" or not cpuinfo:
        return ""
    flags = {
        flag
        for line in cpuinfo.splitlines()
        if line.lower().startswith(("flags", "features"))
        for flag in line.partition(":")[2].split()
    }
    limit = environment.get(_LIMIT, "").upper()
    if flags & _UNITS and limit not in _LIMITS_WITHOUT:
        return ""
    why = f"{_LIMIT}={limit} forbids them" if flags & _UNITS else "it has no units for that"
    return (
        f"dtype bfloat16 is slow on this CPU, {why}: float32 can be several times faster; "
        "try --dtype float32"
    )


def slowness_here(dtype: str) -> str:
    """`slowness` on this machine."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpuinfo = ""
    return slowness(dtype, cpuinfo, os.environ)
