"""What is installed from an index is known by its hash, and images stand on a base by digest."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tests.architecture.sources import ROOT


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_hashes = load(ROOT / "deploy" / "write_hashes.py")
check_wheels = load(ROOT / "deploy" / "docker" / "check_wheels.py")


def versions(text):
    pins = (pin.partition("==") for pin in write_hashes.pins_of(text))
    return {
        (check_wheels.spelled(name), version.split(";")[0].strip()) for name, _, version in pins
    }


@pytest.mark.parametrize("lock", write_hashes.LOCKS)
def test_every_pin_has_its_hashes(lock):
    text = (ROOT / lock).read_text()
    sources = [(ROOT / "constraints" / each).read_text() for each in write_hashes.LOCKS[lock]]
    assert versions(text) == set().union(*map(versions, sources)), "run make hashes"
    assert all(check_wheels.pinned(text).values())


def test_set_up_installs_by_hash_and_the_tools_of_deployment_too():
    makefile = (ROOT / "Makefile").read_text()
    assert "--no-deps --require-hashes -r constraints/hashes.txt" in makefile
    assert (
        "--no-deps --require-hashes -r deploy/tools.lock"
        in (ROOT / "deploy" / "deploy.mk").read_text()
    )
    wanted = (ROOT / "deploy" / "tools.txt").read_text()
    assert versions(wanted) <= versions((ROOT / "deploy" / "tools.lock").read_text())


def test_an_image_has_no_base_but_the_one_that_is_named_by_digest():
    text = (ROOT / "deploy" / "docker" / "Containerfile").read_text()
    assert re.findall(r"^ARG BASE\b.*$", text, re.MULTILINE) == ["ARG BASE"]
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    pages = (ROOT / "docs" / "operations.md").read_text()
    builds = re.findall(r"podman build (?:.*\\\n)*.*", pages)
    assert builds
    assert all(re.search(r"BASE=\S+@sha256:", build) for build in builds)


def wheel(directory, name, data=b"wheel"):
    (directory / name).write_bytes(data)
    return f"--hash=sha256:{hashlib.sha256(data).hexdigest()}"


def test_collected_wheels_are_compared_with_the_hashes(tmp_path):
    known = wheel(tmp_path, "Some_Package-1.0-py3-none-any.whl")
    wheel(tmp_path, "torch-2.0-cp311.whl")
    lock = f"# head\nsome-package==1.0 \\\n    {known}\n"
    assert check_wheels.main(tmp_path, lock).endswith("1 wheels by hash; not by hash: torch")
    wheel(tmp_path, "Some_Package-1.0-py3-none-any.whl", b"another")
    with pytest.raises(SystemExit, match="Some_Package"):
        check_wheels.main(tmp_path, lock)


def test_what_a_pinned_package_needs_is_pinned_too():
    """Set-up asks for no dependencies, so a fresh one would lack what this environment may have."""
    hashed = (ROOT / "constraints" / "hashes.txt").read_text()
    names = {name for name, _ in versions(hashed)}
    missing = set()
    for name in names:
        try:
            needs = metadata.requires(name.replace("_", "-")) or []
        except metadata.PackageNotFoundError:  # of another platform or Python
            continue
        for need in map(Requirement, needs):
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if applies and check_wheels.spelled(need.name) not in {*names, "torch"}:
                missing.add(f"{name} needs {need.name}")
    assert not missing
