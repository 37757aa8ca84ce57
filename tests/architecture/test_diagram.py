"""Every arrow of the import diagram is an import, and every import is an arrow."""

from __future__ import annotations

import re
from functools import cache

import grimp

from tests.architecture.sources import ROOT

DOCUMENT = ROOT / "docs" / "architecture.md"


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


@cache
def drawn() -> set[tuple[str, str]]:
    text = DOCUMENT.read_text()
    (block,) = re.findall(r"```mermaid\ngraph TD\n(.*?)```", text, re.DOTALL)
    return arrows(block)


@cache
def imported() -> set[tuple[str, str]]:
    graph = grimp.build_graph("minedraft", cache_dir=None)
    edges = {
        (part(importer), part(target))
        for importer in graph.modules
        for target in graph.find_modules_directly_imported_by(importer)
    }
    # The package itself only offers Client under its own name.
    return {(a, b) for a, b in edges if a != b and "minedraft" not in {a, b}}


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


def test_the_text_names_every_package():
    text = DOCUMENT.read_text()
    packages = {
        box.removeprefix("minedraft.").replace(".", "/") for edge in imported() for box in edge
    }
    assert not {name for name in packages if f"`{name}" not in text}
