"""Files are small, named for one noun, introduced by a docstring, and mirrored by their tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, TESTS, c_files, parsed, source_files

MAX_LINES = 400
"""The hard limit; 300 is the aim."""
NAMES_THAT_SAY_NOTHING = {"utils.py", "util.py", "helpers.py", "common.py", "base.py", "misc.py"}


@pytest.mark.parametrize("path", source_files(), ids=str)
def test_a_file_is_short_named_and_introduced(path):
    text = (ROOT / path).read_text()
    assert text.count("\n") <= MAX_LINES
    assert path.name not in NAMES_THAT_SAY_NOTHING
    assert ast.get_docstring(parsed(path)), "the first line says what this file is"


@pytest.mark.parametrize("path", c_files(), ids=str)
def test_a_c_file_is_short_and_introduced(path):
    text = (ROOT / path).read_text()
    assert text.count("\n") <= MAX_LINES
    assert text.startswith("/* "), "the first line says what this file is"


def possible_sources(test: Path) -> list[Path]:
    """What a test file may test: `test_NOUN_ASPECT.py` tests `NOUN.py`, as does `test_NOUN.py`."""
    words = test.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    return [test.with_name(f"{'__init__' if name == 'init' else name}.py") for name in names]


def test_every_unit_test_has_its_source():
    sources = {str(path) for path in source_files()}
    tests = [path.relative_to(TESTS / "unit") for path in (TESTS / "unit").rglob("test_*.py")]
    assert tests
    astray = [
        str(path) for path in tests if not any(str(s) in sources for s in possible_sources(path))
    ]
    assert not astray, f"unit tests without a source of that name: {astray}"


def test_every_role_can_be_started_alone():
    for role in ("coordinator", "drafter", "gateway", "verifier"):
        assert (ROOT / "services" / role / "app.py").exists()


def test_every_test_that_the_makefile_names_exists():
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    names = re.findall(r"\btests/[\w./]+\.py\b", makefile)
    for prefix, listed in re.findall(r"\$\(addprefix (tests/\S+),([^)]+)\)", makefile):
        names += [prefix + name for name in listed.split()]
    assert names
    assert not [name for name in names if not (ROOT / name).exists()]
