"""The commands, options, overlays and components that docs/operations.md names exist."""

from __future__ import annotations

import re
import shlex

import pytest
import typer.main
import yaml

from minedraft.cli.main import app
from tests.deploy.rendered import K8S, OVERLAYS, ROOT, rendered

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


def test_an_installation_makes_its_namespace_before_anything_in_it():
    made = PAGE.index("kubectl apply -f deploy/k8s/base/namespace.yaml")
    for later in ("**Certificates**", "**Models.**", "apply -k YOUR_OVERLAY", "create secret"):
        assert made < PAGE.index(later)
    first, *_ = yaml.safe_load_all((K8S / "base" / "namespace.yaml").read_text())
    assert first["kind"] == "Namespace"


def test_the_demo_is_deleted_before_an_installation():
    steps = (
        "kubectl apply -k deploy/k8s/overlays/cpu-demo",
        "kubectl delete -k deploy/k8s/overlays/cpu-demo",
        "**An installation:**",
    )
    places = [PAGE.index(step) for step in steps]
    assert places == sorted(places)
    # Why: on top of the demo an installation would be refused, for a claim cannot change its modes.
    modes = {
        overlay: rendered(overlay).find("PersistentVolumeClaim", "minedraft-models")["spec"][
            "accessModes"
        ]
        for overlay in OVERLAYS
    }
    assert modes["cpu-demo"] not in (modes["one-node"], modes["two-node"])
