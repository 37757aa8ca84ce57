"""Renders each overlay as it is, with each further component, and with all of them at once.

usage: render.py DIRECTORY. Writes OVERLAY.yaml, OVERLAY+COMPONENT.yaml and OVERLAY+everything.yaml.
$KUBECTL says which kubectl; it talks to no cluster.
"""
# ruff: noqa: INP001

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

K8S = Path(__file__).parent / "k8s"
FOR_DEVICES = {"dra", "rdma"}
"""Components on top of `gpu`."""
Rendering = tuple[str, Path, tuple[str, ...]]
"""Name, overlay, components to add."""


def renderings() -> Iterator[Rendering]:
    """What there is to render."""
    there = {path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml")}
    for file in sorted((K8S / "overlays").glob("*/kustomization.yaml")):
        overlay = file.parent
        has = {Path(path).name for path in read(overlay).get("components", [])}
        more = sorted(there - has - (set() if "gpu" in has else FOR_DEVICES))
        yield overlay.name, overlay, ()
        yield from ((f"{overlay.name}+{name}", overlay, (name,)) for name in more)
        yield f"{overlay.name}+everything", overlay, tuple(more)


def read(overlay: Path) -> dict[str, Any]:
    """The overlay's kustomization."""
    return dict(yaml.safe_load((overlay / "kustomization.yaml").read_text()))


def render(overlay: Path, more: tuple[str, ...]) -> bytes:
    """Render a copy of the overlay with more components.

    Raises:
        subprocess.CalledProcessError: kubectl says what is wrong.
    """
    text = read(overlay)
    with tempfile.TemporaryDirectory() as copy:

        def moved(path: Path) -> str:
            return os.path.relpath(path.resolve(), Path(copy).resolve())

        for key in ("resources", "components"):
            text[key] = [moved(overlay / path) for path in text.get(key, [])]
        text["components"] += [moved(K8S / "components" / name) for name in more]
        (Path(copy) / "kustomization.yaml").write_text(yaml.safe_dump(text))
        command = [os.environ.get("KUBECTL", "kubectl"), "kustomize", copy]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603


def main(directory: Path) -> None:
    """Render all, into a directory that then holds nothing else."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.yaml"):
        old.unlink()

    def write(rendering: Rendering) -> None:
        name, overlay, more = rendering
        (directory / f"{name}.yaml").write_bytes(render(overlay, more))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(write, renderings()))
    sys.stdout.write(f"render: {len(done)} renderings in {directory}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
