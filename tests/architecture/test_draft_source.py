"""The life of a draft source is kept, read and changed in one place: its own file."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from minedraft.services.coordinator.core.draft_source import DraftSource
from tests.architecture.sources import parsed, source_files

ROOM = Path("services/coordinator")
NOUN = ROOM / "core" / "draft_source.py"
LIFE = {field.name for field in fields(DraftSource) if field.name.startswith("_")}
OFFERED = {"DraftSource", "Place"}
"""What others may know of it; a state is asked for by a question (`is_warm`), not compared."""
KEPT_BY_HAND = re.compile(r"epoch|warming|suspected|serving|is_linked|is_joining")
"""Names of attributes that would be a piece of a second copy of it."""
ELSEWHERE = [path for path in source_files() if ROOM in path.parents and path != NOUN]


def touched(tree: ast.AST) -> set[str]:
    """Attributes of other objects that code reads or writes."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def imported(tree: ast.AST) -> set[str]:
    """Names taken from the noun's file."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".draft_source")
        for alias in node.names
    }


def kept(tree: ast.AST) -> set[str]:
    """Attributes that objects keep: assigned ones, and fields of classes."""
    assigned = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    declared = {
        part.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return assigned | declared


def test_a_life_has_private_fields_to_look_for():
    assert {"_state", "_owed_step", "_num_missed"} <= LIFE


@pytest.mark.parametrize("path", ELSEWHERE, ids=str)
def test_nobody_else_reads_or_writes_the_life_of_a_draft_source(path):
    tree = parsed(path)
    assert not LIFE & touched(tree)
    assert imported(tree) <= OFFERED


@pytest.mark.parametrize("path", ELSEWHERE, ids=str)
def test_nobody_else_keeps_one_by_hand(path):
    assert not [name for name in kept(parsed(path)) if KEPT_BY_HAND.search(name)]


def test_only_one_method_assigns_the_state():
    (assigning,) = [
        node.name
        for node in ast.walk(parsed(NOUN))
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(part, ast.Attribute)
            and part.attr == "_state"
            and isinstance(part.ctx, ast.Store)
            for part in ast.walk(node)
        )
    ]
    assert assigning == "advance"
