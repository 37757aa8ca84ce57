"""Every arrow of the import diagram is an import, and every import is an arrow."""

from __future__ import annotations

import re
from functools import cache

import grimp
import pytest

from tests.architecture.sources import ROOT

DOCUMENT = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"```mermaid\ngraph TD\n(.*?)```", re.DOTALL)
EVERYWHERE = {"minedraft.errors", "minedraft.types"}
"""Imported by nearly everything and importing nothing above them: left out of the picture."""


def part(module: str) -> str:
    """The box a module is in: `minedraft.model`, `minedraft.services.verifier`."""
    names = module.split(".")
    return ".".join(names[: 3 if names[1:2] == ["services"] else 2])


def arrows(diagram: str) -> set[tuple[str, str]]:
    drawn = set()
    for line in diagram.splitlines():
        left, arrow, right = line.partition(" --> ")
        if arrow:
            drawn |= {(a.strip(), b.strip()) for a in left.split("&") for b in right.split("&")}
    return drawn


def drawn() -> set[tuple[str, str]]:
    (block,) = BLOCK.findall(DOCUMENT.read_text())
    return arrows(block)


@cache
def imported() -> set[tuple[str, str]]:
    graph = grimp.build_graph("minedraft", cache_dir=None)
    edges = {
        (part(importer), part(target))
        for importer in graph.modules
        if not importer.endswith(".__main__")  # the command line under another name
        for target in graph.find_modules_directly_imported_by(importer)
    }
    # The package itself only offers Client under its own name.
    return {
        (a, b) for a, b in edges if a != b and "minedraft" not in {a, b} and b not in EVERYWHERE
    }


@pytest.fixture(autouse=True)
def redrawn(update_golden) -> None:
    """With --update-golden: draw what is imported; the diff is the review."""
    if update_golden:
        targets: dict[str, set[str]] = {}
        for a, b in imported():
            targets.setdefault(a, set()).add(b)
        lines = [f"    {a} --> {' & '.join(sorted(targets[a]))}\n" for a in sorted(targets)]
        block = "```mermaid\ngraph TD\n" + "".join(lines) + "```"
        DOCUMENT.write_text(BLOCK.sub(lambda _: block, DOCUMENT.read_text()))


def test_every_import_between_packages_is_drawn():
    missing = imported() - drawn()
    assert not missing, "imported but not drawn:\n" + "\n".join(
        f"{a} --> {b}" for a, b in sorted(missing)
    )


def test_every_arrow_is_an_import():
    invented = drawn() - imported()
    assert not invented, "drawn but not imported:\n" + "\n".join(
        f"{a} --> {b}" for a, b in sorted(invented)
    )


def test_nothing_everybody_imports_imports_upwards():
    assert not [edge for edge in imported() if edge[0] in EVERYWHERE]


def test_the_text_names_every_package():
    text = DOCUMENT.read_text()
    boxes = EVERYWHERE | {box for edge in imported() for box in edge}
    names = {box.removeprefix("minedraft.").replace(".", "/") for box in boxes}
    assert not {name for name in names if f"| `{name}" not in text}
