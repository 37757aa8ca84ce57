"""Compiles src/*.c into one object per instruction set. Standard library only.

`make kernels`, the build hook of the wheel, and the tests call `build`. Refuses to guess flags: an
instruction set that the compiler does not know is left out, and a source that does not compile is
an error that shows what the compiler said.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HERE: Final = Path(__file__).resolve().parent
SOURCES: Final = HERE / "src"
OBJECTS: Final = HERE / "objects"
"""Where the objects lie: git ignores them, wheels carry them."""

_AVX2: Final = ("-mavx2", "-mfma", "-mf16c", "-mbmi2")
_AVX512: Final = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
FLAGS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "x86_64": {
        "avx2": _AVX2,
        "avx512": _AVX512,
        "avx512-bf16": (*_AVX512, "-mavx512bf16"),
        "avx512-amx": (*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
    },
    "aarch64": {"neon": ("-march=armv8-a",)},
}
"""Compiler flags by machine and instruction set."""
# No -ffast-math and no contraction: a sum has the order in which it is written, on every CPU.
COMMON: Final = (
    "-std=c11", "-D_GNU_SOURCE", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread",
    "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra",
)  # fmt: skip
# Undefined is refused: of libm nothing may come, its last bits differ between machines.
LINK: Final = ("-shared", "-pthread", "-Wl,--no-undefined", "-Wl,-s")
COMPILERS: Final = ("cc", "gcc", "clang")


class CompileError(Exception):
    """A source does not compile; shows what the compiler said."""


def compiler(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Find the C compiler: $CC, else the first of `COMPILERS`; None: there is none."""
    asked = shlex.split(environment.get("CC", ""))
    for command in [asked] if asked else [[name] for name in COMPILERS]:
        if found := shutil.which(command[0], path=environment.get("PATH")):
            return (found, *command[1:])
    return None


def abi() -> int:
    """Compute the number of the sources and flags, 32 bits.

    It is in every object, and `library` refuses an object that has another: Python and C then never
    disagree on what a function takes.
    """
    number = zlib.crc32(repr((COMMON, FLAGS)).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        number = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), number)
    return number


def object_path(isa: str, directory: Path | None = None) -> Path:
    """Return where the object of an instruction set lies; None: in `OBJECTS`."""
    return (directory or OBJECTS) / f"{isa}.so"


def is_fresh(isa: str, directory: Path | None = None) -> bool:
    """Whether the object of `isa` is built of the sources as they are."""
    try:
        content = object_path(isa, directory).read_bytes()
    except OSError:
        return False
    return f"minedraft-kernels {isa} {abi()}u\0".encode() in content


def build(
    directory: Path | None = None,
    *,
    command: Sequence[str] | None = None,
    machine: str | None = None,
    isas: Sequence[str] | None = None,
    flags: Sequence[str] = (),
    sources: Sequence[Path] = (),
) -> list[Path]:
    """Compile every object that this compiler can make; leaves fresh ones alone.

    Args:
        directory: Where to; None: `OBJECTS`.
        command: The compiler; None: `compiler()`.
        machine: Of `FLAGS`; None: this one.
        isas: Which instruction sets; None: all of the machine.
        flags: More flags, for a sanitizer.
        sources: More sources, for tests. With these or more flags nothing counts as fresh.

    Returns:
        The objects, in the order of `FLAGS`. None at all: no compiler, or an unknown machine.

    Raises:
        CompileError: a source does not compile.
    """
    directory = directory or OBJECTS
    command = compiler() if command is None else command
    known = FLAGS.get(platform.machine() if machine is None else machine, {})
    if command is None:
        return []
    wanted = [isa for isa in known if isas is None or isa in isas]
    with _alone(directory):
        return _build(directory, command, {isa: known[isa] for isa in wanted}, flags, sources)


def _build(
    directory: Path,
    command: Sequence[str],
    wanted: Mapping[str, Sequence[str]],
    flags: Sequence[str],
    sources: Sequence[Path],
) -> list[Path]:
    stale = [isa for isa in wanted if flags or sources or not is_fresh(isa, directory)]
    made = [isa for isa in stale if _knows(command, wanted[isa])]
    parts = {
        (isa, source): _part(directory, source, isa, [*command, *COMMON, *wanted[isa], *flags])
        for isa in made
        for source in (*sorted(SOURCES.glob("*.c")), *sources)
    }
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda part: part.make(), parts.values()))
    for isa in made:
        own = [part.path for (of, _), part in parts.items() if of == isa]
        _into(object_path(isa, directory), [*command, *LINK, *flags, *map(str, own)])
        for old in set((directory / "parts" / isa).glob("*.o")) - set(own):
            old.unlink(missing_ok=True)
    return [
        object_path(isa, directory) for isa in wanted
        if isa in made or (isa not in stale and object_path(isa, directory).exists())
    ]  # fmt: skip


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Let one process build at a time: the next one finds everything made."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class _Part:
    """A compiled source, kept until the source, a header or a flag changes."""

    path: Path
    command: tuple[str, ...]

    def make(self) -> None:
        if not self.path.exists():
            _into(self.path, self.command)


def _part(directory: Path, source: Path, isa: str, command: Sequence[str]) -> _Part:
    names = [f'-DMD_ISA="{isa}"', f"-I{SOURCES}"]
    if source.name == "entry.c":  # the only one that knows all others
        names.append(f"-DMD_ABI={abi()}u")
    command = (*command, *names, "-c", str(source))
    read = sorted(_included(source, set()))
    digest = hashlib.sha256(repr((command, [path.read_bytes() for path in read])).encode())
    path = directory / "parts" / isa / f"{source.stem}-{digest.hexdigest()[:32]}.o"
    return _Part(path, command)


def _included(source: Path, found: set[Path]) -> set[Path]:
    """Find what a source reads of ours, itself too."""
    if source not in found and source.exists():
        found.add(source)
        for name in re.findall(r'^#include "(.+)"', source.read_text(), re.MULTILINE):
            _included(SOURCES / name, found)
    return found


def _knows(command: Sequence[str], flags: Sequence[str]) -> bool:
    """Whether the compiler takes these flags."""
    ran = subprocess.run(  # noqa: S603 the compiler that the user named
        [*command, *flags, "-x", "c", "-fsyntax-only", "-"],
        input="", capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.returncode == 0


def _into(target: Path, command: Sequence[str]) -> None:
    """Run the compiler; `target` appears whole or not at all, and who has the old one keeps it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as directory:
        made = Path(directory) / target.name
        ran = subprocess.run(  # noqa: S603 the compiler that the user named
            [*command, "-o", str(made)], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise CompileError(f"{shlex.join(command)}\n{ran.stderr}")
        if ran.stderr:
            sys.stderr.write(ran.stderr)
        made.replace(target)


def main() -> int:
    """Build what is not fresh and say what there is.

    Returns:
        0, or 1 when a source does not compile.
    """
    command = compiler()
    if command is None:
        sys.stdout.write("kernels: no C compiler here; models run with the torch kernels\n")
        return 0
    try:
        built = build(command=command)
    except CompileError as err:
        sys.stderr.write(f"kernels: {err}\n")
        return 1
    sys.stdout.write(f"kernels: {', '.join(path.stem for path in built) or 'none'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
