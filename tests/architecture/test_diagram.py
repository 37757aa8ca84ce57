"""Every arrow of the two import diagrams is an import, and every import is an arrow."""

from __future__ import annotations

import re
from functools import cache

import grimp
import pytest

from tests.architecture.sources import ROOT

DOCUMENT = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"```mermaid\ngraph (?P<way>TD|LR)\n(?P<arrows>.*?)```", re.DOTALL)
EVERYWHERE = {"minedraft.errors", "minedraft.types"}
"""Imported by nearly everything and importing nothing above them: left out of the picture."""
COORDINATOR = "minedraft.services.coordinator"
MAX_ARROWS_INSIDE = 25
"""Between wings and rooms of the coordinator: more, and a newcomer no longer sees the house."""
PACKAGES, ROOMS = "TD", "LR"
"""The two pictures, by the way they run."""


def package(module: str) -> str:
    """The box a module is in: `minedraft.model`, `minedraft.services.verifier`."""
    names = module.split(".")
    return ".".join(names[: 3 if names[1:2] == ["services"] else 2])


def room(module: str) -> str:
    """The wing or file of the coordinator that a module is in; "" for another package's."""
    inside = module.removeprefix(COORDINATOR + ".")
    return "" if inside == module else inside.split(".")[0]


def arrows(diagram: str) -> set[tuple[str, str]]:
    drawn = set()
    for line in diagram.splitlines():
        left, arrow, right = line.partition(" --> ")
        if arrow:
            drawn |= {(a.strip(), b.strip()) for a in left.split("&") for b in right.split("&")}
    return drawn


def drawn(way: str) -> set[tuple[str, str]]:
    blocks = {found["way"]: found["arrows"] for found in BLOCK.finditer(DOCUMENT.read_text())}
    return arrows(blocks[way])


@cache
def imports() -> frozenset[tuple[str, str]]:
    graph = grimp.build_graph("minedraft", cache_dir=None)
    return frozenset(
        (importer, target)
        for importer in graph.modules
        if not importer.endswith(".__main__")  # the command line under another name
        for target in graph.find_modules_directly_imported_by(importer)
    )


@cache
def imported(way: str) -> set[tuple[str, str]]:
    box = package if way == PACKAGES else room
    edges = {(box(a), box(b)) for a, b in imports()}
    # The package itself only offers Client under its own name.
    left_out = {"minedraft", ""}
    return {(a, b) for a, b in edges if a != b and not {a, b} & left_out and b not in EVERYWHERE}


@pytest.fixture(autouse=True)
def redrawn(update_golden) -> None:
    """With --update-golden: draw what is imported; the diff is the review."""

    def redraw(found: re.Match[str]) -> str:
        targets: dict[str, set[str]] = {}
        for a, b in imported(found["way"]):
            targets.setdefault(a, set()).add(b)
        lines = [f"    {a} --> {' & '.join(sorted(targets[a]))}\n" for a in sorted(targets)]
        return f"```mermaid\ngraph {found['way']}\n" + "".join(lines) + "```"

    if update_golden:
        DOCUMENT.write_text(BLOCK.sub(redraw, DOCUMENT.read_text()))


@pytest.mark.parametrize("way", [PACKAGES, ROOMS])
def test_every_import_is_drawn(way):
    missing = imported(way) - drawn(way)
    assert not missing, "imported but not drawn:\n" + "\n".join(
        f"{a} --> {b}" for a, b in sorted(missing)
    )


@pytest.mark.parametrize("way", [PACKAGES, ROOMS])
def test_every_arrow_is_an_import(way):
    invented = drawn(way) - imported(way)
    assert not invented, "drawn but not imported:\n" + "\n".join(
        f"{a} --> {b}" for a, b in sorted(invented)
    )


def test_the_coordinator_has_few_arrows_inside():
    assert len(imported(ROOMS)) <= MAX_ARROWS_INSIDE


def test_nothing_everybody_imports_imports_upwards():
    assert not [edge for edge in imported(PACKAGES) if edge[0] in EVERYWHERE]


def test_the_text_names_every_package():
    text = DOCUMENT.read_text()
    boxes = EVERYWHERE | {box for edge in imported(PACKAGES) for box in edge}
    names = {box.removeprefix("minedraft.").replace(".", "/") for box in boxes}
    assert not {name for name in names if f"| `{name}" not in text}
