"""Finds the object for this CPU, checks it, and types its functions.

Refuses an object that the CPU cannot run, and one that was built of other sources: their functions
might take other arguments, which ctypes cannot see.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING, Final

from minedraft.errors import KernelsError, StateError
from minedraft.model.kernels.c import compile as build
from minedraft.model.kernels.c.cpu import NEEDS, flags_here, runnable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ISA_VARIABLE: Final = "MINEDRAFT_KERNELS_ISA"
"""Forces an object. For tests and measurements."""
_WORDS: Final = {1: "bad argument", 2: "bad dtype code", 3: "out of memory"}
"""Error numbers of src/api.h."""


class Library:
    """A loaded object. One per instruction set and process; never unloaded.

    Args:
        path: The object.
        isa: The instruction set that it is for.

    Raises:
        KernelsError: It cannot be loaded, or is not what it should be.
    """

    def __init__(self, path: Path, isa: str) -> None:
        try:
            self._handle = ctypes.CDLL(str(path))
            number, name = self._handle.md_abi, self._handle.md_isa
        except (OSError, AttributeError) as err:
            raise KernelsError(f"kernels {path}: {err}") from err
        number.restype, name.restype = ctypes.c_uint32, ctypes.c_char_p
        found, wanted = number(), build.abi()
        if found != wanted:
            raise KernelsError(
                f"kernels {path}: ABI {found:08x}, want {wanted:08x}: built of other sources; "
                "run make kernels, or install minedraft again"
            )
        if name() != isa.encode():
            raise KernelsError(f"kernels {path}: built for {name().decode()}, want {isa}")
        self.path = path
        self.isa = isa

    def function(self, name: str, *argtypes: type) -> Callable[..., None]:
        """Type a function that returns an error number.

        A call drops the GIL. It takes addresses as integers (`tensor.data_ptr()`) where `argtypes`
        says `c_void_p`; the caller keeps the memory alive and has checked shapes and dtypes.

        Returns:
            The function; a call raises StateError for an error number, MemoryError for the one that
            says so.
        """
        found = self._handle[name]  # an object of its own at each look-up: nobody else types it
        found.argtypes = argtypes

        def check(number: int) -> None:
            if number:
                message = f"{name}: {_WORDS.get(number, f'error {number}')}"
                raise MemoryError(message) if number == 3 else StateError(message)  # noqa: PLR2004

        found.restype = check
        return found

    def raw(self, name: str, restype: type | None, *argtypes: type) -> Callable[..., object]:
        """Type a function that returns something else."""
        found = self._handle[name]
        found.argtypes, found.restype = argtypes, restype
        return found


def is_forced() -> bool:
    """Whether the environment names an object: nothing else will do then."""
    return bool(os.environ.get(ISA_VARIABLE))


def load(asked: str | None = None) -> Library:
    """Load the best object for this CPU.

    Args:
        asked: An instruction set; None: what `MINEDRAFT_KERNELS_ISA` says, else the best that is
            there.

    Raises:
        KernelsError: There is none, the CPU cannot run the one that is asked for, or it is refused.
    """
    asked = os.environ.get(ISA_VARIABLE, "") if asked is None else asked
    return _load(asked, runnable(flags_here()), build.OBJECTS)


@cache
def _load(asked: str, able: tuple[str, ...], directory: Path) -> Library:
    if asked:
        if asked not in NEEDS:
            raise KernelsError(f"{ISA_VARIABLE}={asked!r}: want one of {', '.join(NEEDS)}")
        if asked not in able:
            raise KernelsError(
                f"{ISA_VARIABLE}={asked!r}: this CPU runs {', '.join(able) or 'none of them'}"
            )
    candidates = (asked,) if asked else able
    for isa in candidates:
        path = build.object_path(isa, directory)
        if path.exists():
            return Library(path, isa)
    if not able:
        raise KernelsError(f"kernels: this CPU runs none of {', '.join(NEEDS)}")
    raise KernelsError(
        f"kernels: no object for {' or '.join(candidates)} in {directory}: "
        "run make kernels, or install minedraft with a C compiler (cc) at hand"
    )
