"""What docstrings, comments and documents cite is there: files, decision records, options."""

from __future__ import annotations

import pytest

from tests.architecture.citations import (
    OPTION,
    command_options,
    labels,
    missing_files,
    missing_records,
    prose,
    python_files,
    script_options,
)
from tests.architecture.sources import ROOT, source_files
from tests.architecture.test_documents import DOCUMENTS

PROTOS = sorted((ROOT / "proto").rglob("*.proto"))
OF_OTHERS = {"--dest"}  # pip
IN_DOCUMENTS = {
    "CONTRIBUTING.md": {"utils.py"},  # forbidden there
    "README.md": {"ask.py"},  # the reader's
    "docs/operations.md": {"--from-file", "--for", "--replicas", "--type"},  # kubectl's
}
"""What a document names that is not ours."""


def relative(path) -> str:
    return str(path.relative_to(ROOT)) if path.is_absolute() else str(path)


def complaints(texts) -> list[str]:
    return [
        what
        for text in texts
        for what in (*missing_files(text), *missing_records(text), *labels(text))
    ]


def test_docstrings_and_comments_cite_what_the_repository_has():
    found = {relative(p): complaints(prose(p)) for p in python_files()}
    assert not {path: what for path, what in found.items() if what}


def test_comments_of_the_protocol_cite_what_the_repository_has():
    comments = (line.partition("//")[2] for p in PROTOS for line in p.read_text().splitlines())
    assert not complaints(comments)


def test_every_option_that_a_docstring_or_comment_explains_is_one():
    named = {
        name: relative(path)
        for path in source_files()
        for text in prose(path)
        for name in OPTION.findall(text)
    }
    assert named
    assert not named.keys() - command_options() - OF_OTHERS, named


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_a_document_names_files_and_options_that_exist(document):
    text = document.read_text()
    of_others = IN_DOCUMENTS.get(relative(document), set())
    assert set(missing_files(text, beside=document.parent)) <= of_others
    assert not missing_records(text)
    assert set(OPTION.findall(text)) <= command_options() | script_options() | of_others


@pytest.mark.parametrize(
    "text",
    [
        "as algorithms.md says",
        "(docs/algorithms.md 1.2)",
        "see ../shared/ops.md",
        "(ADR 0999)",
        "together (invariant I6).",
        "the cost model: finding 0",
        "# C57, I9",
        "as foo.proto has it",
        "the room services/coordinator/wings",
        "docs/OPS.md",
    ],
)
def test_the_search_finds(text):
    assert complaints([text])


@pytest.mark.parametrize(
    "text", ["docs/gpu.md", "ADR 0003", "link.proto", "a C1 control", "Q4_1", "docs/adr/0015"]
)
def test_the_search_lets_pass(text):
    assert not complaints([text])
