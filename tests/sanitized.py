"""Runs the tests of the C kernels once more, with the kernels built by AddressSanitizer and UBSan.

usage: python tests/sanitized.py [pytest arguments]; `make test-sanitized`. The tests are those with
the mark `sanitized`: torch's memory has red zones around it then, so that a read or write beyond a
tensor ends the run. Says why and succeeds where there is no C compiler or no sanitizer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OBJECTS = ROOT / "out" / "sanitized"
# Calls in place of code at every access: unrolled kernels would take minutes to compile. What is
# left out of UBSan are the checks of every pointer; memory is AddressSanitizer's.
FLAGS = (
    "-O1", "-fsanitize=address,shift,signed-integer-overflow,integer-divide-by-zero,bounds",
    "-fno-sanitize-recover=all", "--param", "asan-instrumentation-with-call-threshold=0",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Build, then run the tests in a process that has the sanitizer from its start."""
    sys.path.insert(0, str(ROOT))
    from minedraft.model.kernels.c import compile as build
    from minedraft.model.kernels.c.cpu import flags_here, runnable

    command = build.compiler()
    able = runnable(flags_here())
    if command is None or not able:
        sys.stdout.write("sanitized: SKIPPED: no C compiler here, or no kernels for this CPU\n")
        return 0
    libraries = [found for name in ("libasan.so", "libubsan.so") if (found := where(command, name))]
    if not libraries:
        sys.stdout.write(f"sanitized: SKIPPED: {command[0]} has no AddressSanitizer\n")
        return 0
    built = build.build(OBJECTS, isas=able[:1], flags=FLAGS)
    for old in set(OBJECTS.glob("*.so")) - set(built):  # of another state of the sources
        old.unlink()
    sys.stdout.write(f"sanitized: {', '.join(path.stem for path in built)}\n")
    env = {
        **os.environ, "LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0",
        "SANITIZED_OBJECTS": str(OBJECTS),
    }  # fmt: skip
    # The largest product takes longest and reads beyond nothing that the others do not.
    tests = [
        "-m",
        "sanitized",
        "-k",
        "not 960-576",
        "-p",
        "no:cacheprovider",
        "--timeout=120",
        *arguments,
    ]
    where_they_are = "tests/unit/minedraft/model/kernels"
    return subprocess.run(
        [sys.executable, "-m", "pytest", where_they_are, *tests], cwd=ROOT, env=env, check=False
    ).returncode


def where(command: tuple[str, ...], library: str) -> str:
    """Find a library of the compiler; empty: it has none."""
    ran = subprocess.run(
        [*command, f"-print-file-name={library}"], capture_output=True, text=True, check=False
    )
    found = ran.stdout.strip()
    return found if Path(found).is_absolute() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
