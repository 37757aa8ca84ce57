"""Validates what render.py wrote against schemas, strictly. Talks to no cluster.

usage: check_schemas.py DIRECTORY VERSION... Runs in the environment of `make deploy-static`, which
has kubernetes-validate and jsonschema. Kinds that Kubernetes itself does not have must be described
in schemas/.
"""
# ruff: noqa: INP001

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

SCHEMAS = Path(__file__).parent / "schemas"
NEEDS = {"dra": (1, 34), "image-volumes": (1, 35), "everything": (1, 35)}
"""Components that older versions do not know."""


def validate(item: dict[str, Any], version: str) -> None:
    """Validate one object.

    Raises:
        jsonschema.ValidationError: it does not fit its schema.
        kubernetes_validate.ValidationError: likewise.
    """
    own = SCHEMAS / f"{item['kind']}.json"
    if own.exists():
        jsonschema.validate(item, json.loads(own.read_text()))
    else:
        kubernetes_validate.validate(item, version, strict=True)


def brief(err: Exception) -> str:
    """What is wrong and where; all that the libraries say is a schema, pages long."""
    if isinstance(err, jsonschema.ValidationError):
        return f"{err.json_path}: {err.message}"
    return f"Kubernetes has no such kind, nor has {SCHEMAS.name}/"


def main(directory: Path, versions: list[str]) -> int:
    """Check all; returns the exit code."""
    seen: set[tuple[str, str]] = set()  # most objects are the same in most renderings
    failed = 0
    files = sorted(directory.glob("*.yaml"), key=lambda file: file.stem)
    for file in files:
        items = list(yaml.load_all(file.read_text(), yaml.CSafeLoader))
        needs = NEEDS.get(file.stem.partition("+")[2], (1, 0))
        for version in versions:
            if tuple(map(int, version.split("."))) < needs:
                continue
            for item in items:
                key = (version, json.dumps(item, sort_keys=True))
                if key in seen:
                    continue
                seen.add(key)
                try:
                    validate(item, version)
                except (jsonschema.ValidationError, kubernetes_validate.SchemaNotFoundError) as err:
                    failed += 1
                    what = f"{file.name}, Kubernetes {version}, {item['kind']}"
                    sys.stdout.write(f"schemas: {what} {item['metadata']['name']}: {brief(err)}\n")
    sys.stdout.write(
        f"schemas: {len(files)} renderings, {len(seen)} distinct objects for Kubernetes "
        f"{' or '.join(versions)}, {failed} not valid\n"
    )
    return int(failed > 0 or not seen)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
