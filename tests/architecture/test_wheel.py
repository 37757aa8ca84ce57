"""The wheel holds the package and nothing else, services included, and works unpacked."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.architecture.sources import ROOT, source_files


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return directory


@pytest.fixture(scope="module")
def names(dist):
    (wheel,) = dist.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


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


def test_the_roles_import_from_the_unpacked_wheel(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import minedraft.services.coordinator as role; print(role.__file__)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(str(tmp_path))


def test_a_wheel_built_from_the_sdist_is_the_same(dist, names, tmp_path):
    (sdist,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", str(sdist), "-C", str(tmp_path)], check=True)
    (unpacked,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=unpacked, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(wheel).namelist()) == names
