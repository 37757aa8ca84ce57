"""The NEON object compiles, and an emulated Arm has the bits of AVX2, kernel by kernel.

Skipped without the Debian packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import flags_here, runnable

DRIVER = Path(__file__).with_name("cross_driver.c")
PARTS = Path(__file__).parents[6] / "out" / "neon"
"""Kept, so that only the first run compiles everything."""
CROSS, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(not (CROSS and EMULATOR), reason="no compiler for Arm, or no emulator"),
    pytest.mark.skipif(
        "avx2" not in runnable(flags_here()) or not build.object_path("avx2").exists(),
        reason="no AVX2 object here to compare with",
    ),
]


def hashes(compiler, library, run, target):
    """Link the driver with an object and run it; a line per kernel, dtype and storage."""
    command = [*compiler, *build.COMMON, f"-I{build.SOURCES}", str(DRIVER), str(library)]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}", "-o", target], check=True)
    ran = subprocess.run([*run, target], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_neon_has_the_bits_of_avx2(tmp_path):
    (neon,) = build.build(PARTS, command=[CROSS], machine="aarch64", flags=["-O1"])
    emulator = [EMULATOR, "-L", "/usr/aarch64-linux-gnu"]
    found = hashes([CROSS], neon, emulator, str(tmp_path / "neon"))
    wanted = hashes(build.compiler(), build.object_path("avx2"), [], str(tmp_path / "avx2"))
    assert len(wanted) > 15
    assert all(line.split()[1] == "0" for line in wanted)
    assert found == wanted
