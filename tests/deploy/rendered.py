"""Manifests as kubectl renders them, for the tests of this folder. Talks to no cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "deploy" / "k8s"
OVERLAYS = ("cpu-demo", "one-node", "two-node")
EXTRA_COMPONENTS = ("dra", "image-volumes", "keda", "podmonitor")
"""Those that no overlay has: whoever wants one adds it to a copy of an overlay."""
ADDITIONS = {
    "cpu-demo": ("gpu", "image-volumes", "keda", "mtls", "podmonitor"),
    "one-node": (*EXTRA_COMPONENTS, "rdma"),
    "two-node": EXTRA_COMPONENTS,
}
"""What makes sense on top of each overlay: dra and rdma only where devices are."""
ROLES = ("coordinator", "drafter", "verifier")
WORKERS = ("drafter", "verifier")

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """The objects of one rendering."""

    objects: tuple[Manifest, ...]

    def find(self, kind: str, name: str) -> Manifest:
        (found,) = (o for o in self.of(kind) if o["metadata"]["name"] == name)
        return found

    def of(self, kind: str) -> list[Manifest]:
        return [o for o in self.objects if o["kind"] == kind]

    @property
    def workloads(self) -> list[Manifest]:
        return [o for o in self.objects if "template" in o.get("spec", {})]

    def workload(self, role: str) -> Manifest:
        (found,) = (o for o in self.workloads if o["metadata"]["name"] == role)
        return found

    def pod(self, role: str) -> Manifest:
        return self.workload(role)["spec"]["template"]["spec"]

    def main(self, role: str) -> Manifest:
        """The container that is the service."""
        (found,) = (c for c in self.pod(role)["containers"] if c["name"] == role)
        return found


def env(container: Manifest) -> dict[str, str]:
    """Plain variables of a container; those from elsewhere are "<from>"."""
    return {each["name"]: each.get("value", "<from>") for each in container.get("env", [])}


@cache
def rendered(overlay: str, components: tuple[str, ...] = ()) -> Rendered:
    """Render an overlay, as it is or in a copy with more components."""
    # The second is what `make deploy-static` fetches where there is none.
    kubectl = shutil.which("kubectl") or shutil.which("kubectl", path=ROOT / ".venv-deploy" / "bin")
    if kubectl is None:
        pytest.skip("kubectl is not installed: it renders the overlays")
    directory = K8S / "overlays" / overlay
    if not components:
        return _run(kubectl, directory)
    with tempfile.TemporaryDirectory(dir=ROOT / "out" if (ROOT / "out").is_dir() else None) as copy:
        text = yaml.safe_load((directory / "kustomization.yaml").read_text())
        paths = [K8S / "components" / name for name in components]
        for key in ("resources", "components"):
            text[key] = [_from(copy, directory / path) for path in text.get(key, [])]
        text["components"] += [_from(copy, path) for path in paths]
        (Path(copy) / "kustomization.yaml").write_text(yaml.safe_dump(text))
        return _run(kubectl, Path(copy))


def _from(start: str, path: Path) -> str:
    return os.path.relpath(path.resolve(), Path(start).resolve())


def _run(kubectl: str, directory: Path) -> Rendered:
    run = subprocess.run(
        [kubectl, "kustomize", str(directory)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return Rendered(tuple(yaml.safe_load_all(run.stdout)))
