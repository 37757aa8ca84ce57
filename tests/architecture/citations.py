"""What people read in source files, and what it cites. Shared by the tests of the architecture."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer.main

from minedraft.cli.main import app
from tests.architecture.sources import GENERATED, LINK, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDERS = ("minedraft", "services", "tests", "benchmarks", "deploy", "proto", "docs", "constraints")
CITED_FILE = re.compile(r"(?<![\w.*/{-])([\w./-]*\w\.(?:md|proto|toml|mk|py|sh))\b(?!-)")
CITED_PATH = re.compile(
    rf"(?<![\w/.<{{*-])((?:{'|'.join(FOLDERS)}|data|models)/[\w./-]*\w)(?![\w/*{{<-])"
)
PLACEHOLDER = re.compile(r"[A-Z]{2,}(?!.*\.md$)")
"""A word in capitals stands for a name; documents in capitals are meant as they are."""
OF_OTHERS = {"deploy/coordinator"}
"""kubectl's word for a Deployment."""
RECORD = re.compile(r"\bADR (\d+)")
LABEL = re.compile(
    r"\b(?:[A-Z]\d{1,2}|(?i:invariant|finding|claim|section|chapter|criterion|item) #?[A-Z]?\d+)\b"
)
"""A number in some list of somebody's, which the sentence does not name."""
NAMES_LIKE_LABELS = {"C0", "C1", "R1", "T5"}
"""Sets of control characters, and families of models."""
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")


@cache
def python_files() -> tuple[Path, ...]:
    """Every Python file written by hand, relative to the root: tests and scripts too."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    relative = (path.relative_to(ROOT) for path in found)
    return tuple(sorted(p for p in relative if p.parts[:2] not in {*GENERATED, LINK}))


@cache
def repository() -> tuple[str, ...]:
    """Every file that prose may name, relative to the root, with a slash in front."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    beside = (path for path in ROOT.iterdir() if path.is_file())
    return tuple(f"/{path.relative_to(ROOT)}" for path in (*inside, *beside) if path.is_file())


@cache
def prose(path: Path) -> tuple[str, ...]:
    """Docstrings and comments of a Python file, the strings under its fields too."""
    return tuple(_prose((ROOT / path).read_text()))


def _prose(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def missing_files(text: str, *, beside: Path = ROOT) -> list[str]:
    """Cited files that are nowhere: a citation is the end of a path.

    Args:
        text: Prose.
        beside: The folder of the document, where a path with dots begins.
    """
    cited = {name.removeprefix("./") for name in CITED_FILE.findall(text)}
    cited |= set(CITED_PATH.findall(text))
    return sorted(name for name in cited - OF_OTHERS if not _is_there(name, beside))


def _is_there(name: str, beside: Path) -> bool:
    return (
        (ROOT / name).exists()
        or (beside / name).exists()
        or any(f.endswith(f"/{name}") or f.startswith(f"/{name}") for f in repository())
        or PLACEHOLDER.search(name) is not None
    )


def missing_records(text: str) -> list[str]:
    """Cited decision records that do not exist."""
    cited = sorted(set(RECORD.findall(text)))
    return [n for n in cited if not list((ROOT / "docs" / "adr").glob(f"{n}-*.md"))]


def labels(text: str) -> list[str]:
    """Numbers in lists that are not here."""
    return sorted(set(LABEL.findall(text)) - NAMES_LIKE_LABELS)


@cache
def command_options() -> frozenset[str]:
    """Every option of every command of `minedraft`."""
    return frozenset(_options(typer.main.get_command(app)))


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from parameter.opts
        yield from parameter.secondary_opts
    for child in getattr(command, "commands", {}).values():
        yield from _options(child)


@cache
def script_options() -> frozenset[str]:
    """Every option that a script or the Makefile spells."""
    files: Iterable[Path] = (
        *(ROOT / "benchmarks").rglob("*.py"),
        *(p for p in (ROOT / "deploy").rglob("*") if p.is_file() and p.suffix != ".pyc"),
        ROOT / "tests" / "conftest.py",
        ROOT / "Makefile",
    )
    return frozenset(name for path in files for name in OPTION.findall(path.read_text()))
