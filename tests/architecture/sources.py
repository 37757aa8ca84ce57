"""Where the source is and what its parts are called. Shared by the tests of the architecture."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


@cache
def source_files() -> tuple[Path, ...]:
    """Every file written by hand that ends up in the wheel, relative to the root."""
    found = [*(ROOT / "minedraft").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    relative = (path.relative_to(ROOT) for path in found)
    # Python 3.13's rglob follows the link minedraft/services; earlier ones do not.
    return tuple(
        sorted(
            path for path in relative if path.parts[:2] not in GENERATED and path.parts[:2] != LINK
        )
    )


@cache
def c_files() -> tuple[Path, ...]:
    """Every source of the C kernels, relative to the root."""
    return tuple(sorted(path.relative_to(ROOT) for path in (ROOT / "minedraft").rglob("*.[ch]")))


GENERATED = {("minedraft", "v1")}
LINK = ("minedraft", "services")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file of `source_files`."""
    return ast.parse((ROOT / path).read_text(), str(path))
