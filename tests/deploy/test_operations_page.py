"""The commands, options, overlays and components that docs/operations.md names exist."""

from __future__ import annotations

import re
import shlex

import pytest
import typer.main

from minedraft.cli.main import app
from tests.deploy.rendered import K8S, ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = sorted(set(re.findall(r"^ *\.venv/bin/(minedraft [^#\n]+)", PAGE, re.MULTILINE)))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_has_its_options(line):
    _, *words = shlex.split(line)
    command = typer.main.get_command(app)
    context = None
    while words and words[0] in getattr(command, "commands", {}):
        context = command.make_context("minedraft", [], parent=context, resilient_parsing=True)
        command = command.get_command(context, words.pop(0))
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
    assert command.name in line


def test_the_page_shows_how_to_run_each_role_and_to_swap():
    assert {line.split()[1] for line in COMMANDS} >= {"coordinator", "drafter", "verifier"}
    assert any(line.startswith("minedraft drafter swap") for line in COMMANDS)


@pytest.mark.parametrize("kind", ["overlays", "components"])
def test_every_overlay_and_component_is_on_the_page(kind):
    for path in (K8S / kind).glob("*/kustomization.yaml"):
        assert f"| `{path.parent.name}` |" in PAGE


def test_every_file_of_the_page_exists():
    for path in re.findall(r"\bdeploy/[\w./-]+\w", PAGE):
        # `deploy/coordinator` is kubectl's word for a Deployment.
        assert (ROOT / path).exists() or path == "deploy/coordinator"
