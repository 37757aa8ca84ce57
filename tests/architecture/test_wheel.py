"""The wheel holds the package and nothing else, services included, and works unpacked."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest

from minedraft.model.kernels.c.compile import compiler
from tests.architecture.sources import ROOT, c_files, source_files

QUICK = {"entry", "pool"}
"""C sources that compile in no time."""
needs_cc = pytest.mark.skipif(compiler() is None, reason="no C compiler here")


def build(directory, *arguments, cwd=ROOT, **environment):
    """Build with hatchling; returns what it said."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory), *arguments]
    env = {**os.environ, **environment}
    ran = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    build(directory)
    return directory


@pytest.fixture(scope="module")
def wheel(dist):
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def unpacked(dist, tmp_path_factory):
    """An unpacked sdist: no checkout, no objects."""
    directory = tmp_path_factory.mktemp("sdist")
    (sdist,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", str(sdist), "-C", str(directory)], check=True)
    (found,) = directory.iterdir()
    assert not list(found.rglob("*.so"))
    return found


def objects(names):
    return {name for name in names if name.endswith(".so")}


def info(wheel, file):
    """Read a file of the wheel's .dist-info."""
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(f".dist-info/{file}")]
    return archive.read(name).decode()


def test_the_wheel_puts_nothing_but_minedraft_into_site_packages(names):
    tops = {name.split("/")[0] for name in names}
    (info,) = tops - {"minedraft"}
    assert info.endswith(".dist-info")
    assert "minedraft" in tops


def test_the_wheel_holds_every_source_file(names):
    installed = {
        str("minedraft" / path if path.parts[0] == "services" else path) for path in source_files()
    }
    assert not installed - names
    assert "minedraft/py.typed" in names
    assert not {str(path) for path in c_files()} - names


def test_the_roles_import_from_the_unpacked_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import minedraft.services.coordinator as role; print(role.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(str(tmp_path))


def loaded(wheel, directory):
    """Unpack a wheel and load its kernels; returns the instruction set, or why not."""
    zipfile.ZipFile(wheel).extractall(directory)
    code = (
        f"import sys; sys.path.insert(0, {str(directory)!r})\n"
        "from minedraft.errors import KernelsError\n"
        "from minedraft.model.kernels.c.library import load\n"
        "try: print(load().isa)\n"
        "except KernelsError as err: print(err)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@needs_cc
def test_the_wheel_carries_the_objects_that_this_machine_runs(wheel, names, tmp_path):
    assert objects(names)
    assert all(name.startswith("minedraft/model/kernels/c/objects/") for name in objects(names))
    assert loaded(wheel, tmp_path) in {name.split("/")[-1][:-3] for name in objects(names)}


@needs_cc
def test_a_wheel_with_objects_says_for_which_platform(wheel):
    *_, platform = wheel.stem.split("-")
    assert platform.startswith(("manylinux_2_", "linux_"))
    assert f"Tag: py3-none-{platform}" in info(wheel, "WHEEL")
    assert "Root-Is-Purelib: false" in info(wheel, "WHEEL")
    glibc = os.confstr("CS_GNU_LIBC_VERSION")
    if platform.startswith("manylinux"):
        # What it was linked with is at least what it asks for.
        assert int(platform.split("_")[2]) <= int(glibc.split()[1].split(".")[1])


@needs_cc
def test_the_objects_and_the_wheel_name_their_licence(wheel):
    archive = zipfile.ZipFile(wheel)
    for name in objects(archive.namelist()):
        assert b"SPDX-License-Identifier: Apache-2.0" in archive.read(name)
    assert "License-Expression: Apache-2.0" in info(wheel, "METADATA")


@needs_cc
def test_a_wheel_built_from_the_sdist_is_the_same(unpacked, wheel, names, tmp_path):
    slow = [path for path in c_files() if path.suffix == ".c" and path.stem not in QUICK]
    assert slow
    for path in slow:  # they are there; compiling them takes half a minute
        (unpacked / path).rename(tmp_path / path.name)
    build(tmp_path, "-t", "wheel", cwd=unpacked)
    for path in slow:
        (tmp_path / path.name).rename(unpacked / path)
    (found,) = tmp_path.glob("*.whl")
    assert found.name == wheel.name
    assert set(zipfile.ZipFile(found).namelist()) == names - {str(path) for path in slow}


def nowhere(tmp_path):
    """A PATH without a compiler."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "CC": ""}


def test_without_a_compiler_the_wheel_is_pure_python_and_the_build_says_so(unpacked, tmp_path):
    said = build(tmp_path, "-t", "wheel", cwd=unpacked, **nowhere(tmp_path))
    (found,) = tmp_path.glob("*.whl")
    assert found.name.endswith("-py3-none-any.whl")
    assert not objects(zipfile.ZipFile(found).namelist())
    assert "Root-Is-Purelib: true" in info(found, "WHEEL")
    assert "no C kernels: models will run with the torch kernels" in said
    (tmp_path / "site").mkdir()
    assert "no object for" in loaded(found, tmp_path / "site")


def test_a_compiler_that_fails_does_not_fail_the_wheel(unpacked, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text('#!/bin/sh\ncase "$*" in *-fsyntax-only*) exit 0;; esac\nexit 1\n')
    broken.chmod(0o755)
    said = build(tmp_path, "-t", "wheel", cwd=unpacked, CC=str(broken))
    (found,) = tmp_path.glob("*.whl")
    assert found.name.endswith("-py3-none-any.whl")
    assert "do not compile here" in said
