"""C kernels for tests: the object for this CPU, or a skip where there is no compiler."""

from __future__ import annotations

import pytest

from minedraft.errors import KernelsError
from minedraft.model.kernels.c.cpu import flags_here, runnable
from minedraft.model.kernels.c.draw import Draw
from minedraft.model.kernels.c.library import Library, load


def library(isa: str = "") -> Library:
    """An object; the best one by default."""
    if isa and isa not in runnable(flags_here()):
        pytest.skip(f"this CPU does not run {isa}")
    try:
        return load(isa)
    except KernelsError as err:
        pytest.skip(str(err))


def draw_kernel(isa: str = "", **options) -> Draw:
    """The draw, on the calling thread alone."""
    return Draw(library(isa), options.pop("pool", None), **options)
