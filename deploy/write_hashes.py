"""Writes the hashes of what is installed from an index. usage: write_hashes.py UV (make hashes).

It pins nothing: versions are those of constraints/*.txt and of deploy/tools.lock itself. All files
of a version are taken, so that every Python and platform finds its own.
"""
# ruff: noqa: INP001

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = {
    "constraints/hashes.txt": ("core.txt", "dev.txt", "cpu.txt"),
    "deploy/tools.lock": ("../deploy/tools.lock",),
}
NOT_BY_HASH = ("torch",)
"""Its builds are a site's choice, and each has other hashes."""


def pins_of(text: str) -> list[str]:
    """Find the lines `name==version` of a pins or a lock file."""
    lines = (line.partition("#")[0].strip(" \\\t") for line in text.splitlines())
    pins = [line for line in lines if "==" in line]
    return [pin for pin in pins if pin.partition("==")[0] not in NOT_BY_HASH]


def main(uv: str) -> None:
    """Write both files; their first comment stays."""
    for name, sources in LOCKS.items():
        lock = ROOT / name
        head = [line for line in lock.read_text().splitlines() if line.startswith("#")]
        pins = [
            pin
            for source in sources
            for pin in pins_of((ROOT / "constraints" / source).read_text())
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(pins))
            file.flush()
            command = [uv, "pip", "compile", "--quiet", "--no-deps", "--generate-hashes"]
            command += ["--universal", "--python-version", "3.11.5", "--no-header", "--no-annotate"]
            ran = subprocess.run(  # noqa: S603
                [*command, file.name], check=True, capture_output=True, text=True
            )
        lock.write_text("\n".join([*head, ran.stdout]))


if __name__ == "__main__":
    main(sys.argv[1])
