"""What the documents claim of the code is so. Prose is left alone."""

from __future__ import annotations

import re

import pytest

from minedraft.cli.main import app
from minedraft.services.coordinator.core import draft_source, request
from tests.architecture.sources import ROOT, source_files

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
)
TABLES = {"request": request.TRANSITIONS, "draft source": draft_source.TRANSITIONS}
"""Transition tables by the noun whose life they are; a life begins in the first state."""
BEGIN, END = "<!-- {}: drawn by make docs -->\n", "<!-- end -->\n"


def drawn(table) -> str:
    """A transition table as a mermaid state diagram; ANY: every state but the last."""
    shared = set.intersection(*(set(row.items()) for row in table.values() if row))
    arrows: dict[tuple[str, str], list[str]] = {}
    for state, row in table.items():
        for event, target in row.items():
            name = "ANY" if (event, target) in shared else state.name
            events = arrows.setdefault((name, target.name), [])
            if event.name not in events:
                events.append(event.name)
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    begin = f"    [*] --> {next(iter(table)).name}"
    return "\n".join(["```mermaid", "stateDiagram-v2", begin, *lines, "```\n"])


@pytest.mark.parametrize("noun", TABLES)
def test_the_state_diagram_is_the_transition_table(noun, update_golden):
    document = ROOT / "docs" / "architecture.md"
    text = document.read_text()
    before, begin, rest = text.partition(BEGIN.format(noun))
    old, end, after = rest.partition(END)
    assert begin, "the place for the diagram is marked"
    assert end, "the place for the diagram is marked"
    if update_golden:
        document.write_text(before + begin + drawn(TABLES[noun]) + end + after)
    else:
        assert old == drawn(TABLES[noun]), "run make docs"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_of_a_document_leads_somewhere(document):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text())
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert not [link for link in local if not (document.parent / link).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_of_a_document_exists(document):
    rules = "".join((ROOT / name).read_text() for name in ("Makefile", "deploy/deploy.mk"))
    targets = set(re.findall(r"^([a-z0-9-]+):", rules, re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", document.read_text(), re.MULTILINE))
    assert not named - targets


def test_the_readme_fits_a_sitting():
    assert (ROOT / "README.md").read_text().count("\n") < 150


def test_every_decision_record_is_listed_in_order():
    records = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    numbers = [name[:4] for name in records]  # a gap is a record that is being written
    assert len(numbers) == len(set(numbers))
    listed = (ROOT / "docs" / "adr" / "README.md").read_text()
    places = [listed.find(f"]({name})") for name in records]
    assert -1 not in places
    assert places == sorted(places)


def test_the_readme_asks_in_ten_lines_that_compile():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    compile(code, "README.md", "exec")
    assert len([line for line in code.splitlines() if line]) <= 10


def test_every_command_of_the_readme_exists():
    named = re.findall(r"minedraft ([a-z]+)\b", (ROOT / "README.md").read_text())
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    assert named
    assert not set(named) - known


def test_every_bound_of_the_security_page_is_reached_by_a_test_that_exists():
    page = (ROOT / "docs" / "security.md").read_text()
    section = page.partition("## Bounds\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| what |")]
    assert rows
    for row in rows:
        file, _, name = re.findall(r"`(tests/[^`:]+\.py)(::(?:\w+::)?(\w+))?`", row)[-1]
        source = (ROOT / file).read_text()
        assert not name or f"def {name}(" in source, row


def test_every_name_of_the_glossary_is_in_the_code():
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    cells = [line.split("|")[-2] for line in lines if line.startswith("|")]
    named = {
        word for cell in cells for code in re.findall(r"`([^`]+)`", cell)
        for word in re.findall(r"[A-Za-z_]\w+", code)
    }  # fmt: skip
    files = [*source_files(), *(ROOT / "proto").rglob("*.proto")]
    text = "\n".join((ROOT / path).read_text() for path in files)
    assert named
    assert not {word for word in named if not re.search(rf"\b{word}\b", text)}


def test_every_test_and_file_of_a_recipe_exists():
    page = (ROOT / "docs" / "extending.md").read_text()
    sources = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`([\w/]*test_\w+\.py)::(\w+)`", page)
    assert named
    for file, name in named:
        found = [text for path, text in sources.items() if str(path).endswith(f"/{file}")]
        assert any(f"def {name}(" in text for text in found), f"{file}::{name}"
