"""Compares collected wheels with constraints/hashes.txt. usage: check_wheels.py DIRECTORY.

Fails at one that is not what is pinned. Names those that are not pinned by hash: ours, torch, and
what a CUDA build of it brings.
"""
# ruff: noqa: INP001

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

HASHES = Path(__file__).parents[2] / "constraints" / "hashes.txt"


def pinned(text: str) -> dict[str, set[str]]:
    """Read a lock: hashes by name, as wheels spell it."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if "==" in line and not line.startswith("#"):
            name = spelled(line.partition("==")[0])
            found[name] = set()
        found.get(name, set()).update(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


def spelled(name: str) -> str:
    """Write a package's name as wheels do."""
    return re.sub(r"[-_.]+", "_", name.strip()).lower()


def main(directory: Path, lock: str) -> str:
    """Compare.

    Returns:
        A line about the wheels.
    """
    by_name, known, others = pinned(lock), 0, []
    for wheel in sorted(directory.glob("*.whl")):
        name = spelled(wheel.name.partition("-")[0])
        if name not in by_name:
            others.append(name)
        elif hashlib.sha256(wheel.read_bytes()).hexdigest() in by_name[name]:
            known += 1
        else:
            sys.exit(f"wheelhouse: {wheel.name}: not a file of constraints/hashes.txt")
    return f"wheelhouse: {known} wheels by hash; not by hash: {', '.join(others)}"


if __name__ == "__main__":
    sys.stdout.write(main(Path(sys.argv[1]), HASHES.read_text()) + "\n")
