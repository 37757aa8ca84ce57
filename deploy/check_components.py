"""Validates every component on a copy of an overlay against schemas, strictly. Talks to no cluster.

Runs in the environment of `make deploy-check`, which has kubernetes-validate and jsonschema. Kinds
that Kubernetes itself does not have must be described in schemas/.
"""
# ruff: noqa: INP001

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

HERE = Path(__file__).parent
K8S = HERE / "k8s"
OVERLAY = "one-node"
NEEDS = {"dra": (1, 34), "image-volumes": (1, 35)}
"""Components that older versions do not know."""


def render(components: list[str]) -> list[dict[str, Any]]:
    """Render a copy of the overlay with more components."""
    source = K8S / "overlays" / OVERLAY
    text = yaml.safe_load((source / "kustomization.yaml").read_text())
    with tempfile.TemporaryDirectory() as copy:

        def moved(path: Path) -> str:
            return os.path.relpath(path.resolve(), Path(copy).resolve())

        text["resources"] = [moved(source / path) for path in text["resources"]]
        paths = [*(source / path for path in text["components"])]
        paths += [K8S / "components" / name for name in components]
        text["components"] = [moved(path) for path in paths]
        (Path(copy) / "kustomization.yaml").write_text(yaml.safe_dump(text))
        command = ["kubectl", "kustomize", copy]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603
    return list(yaml.safe_load_all(output.stdout))


def validate(item: dict[str, Any], version: str) -> None:
    """Validate one object.

    Raises:
        jsonschema.ValidationError: it does not fit its schema.
        kubernetes_validate.ValidationError: likewise.
    """
    own = HERE / "schemas" / f"{item['kind']}.json"
    if own.exists():
        jsonschema.validate(item, json.loads(own.read_text()))
    else:
        kubernetes_validate.validate(item, version, strict=True)


def main(versions: list[str]) -> int:
    """Check all; returns the exit code."""
    already = set(
        yaml.safe_load((K8S / "overlays" / OVERLAY / "kustomization.yaml").read_text())[
            "components"
        ]
    )
    names = sorted(path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml"))
    failed = 0
    for name in names:
        if f"../../components/{name}" in already:
            continue
        items = render([name])
        for version in versions:
            if tuple(map(int, version.split("."))) < NEEDS.get(name, (1, 0)):
                continue
            try:
                for item in items:
                    validate(item, version)
                sys.stdout.write(
                    f"schemas: {OVERLAY} with {name} is valid for Kubernetes {version}\n"
                )
            except Exception as err:  # noqa: BLE001 whatever is wrong is reported
                failed += 1
                sys.stdout.write(f"schemas: {OVERLAY} with {name}, Kubernetes {version}: {err}\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
