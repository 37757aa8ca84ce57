from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from minedraft.kept_forms import MAX_FILE_BYTES, MAX_FILES, KeptForms, read, write

if TYPE_CHECKING:
    from pathlib import Path

NAME = "costs-" + "a" * 32
OTHER = "costs-" + "b" * 32


def ignored(directory: Path) -> tuple[dict[str, Any], list[str]]:
    """What is found, and why each file is ignored."""
    with capture_logs() as logs:
        found = read(directory)
    return found, [entry["why"] for entry in logs if entry["event"] == "cache.ignored"]


def test_what_was_written_is_read(tmp_path):
    write(tmp_path / "new" / "place", {NAME: {"a": [1, 2.5]}, OTHER: []})
    assert ignored(tmp_path / "new" / "place") == ({NAME: {"a": [1, 2.5]}, OTHER: []}, [])


def test_a_directory_that_is_not_there_holds_nothing(tmp_path):
    assert ignored(tmp_path / "nowhere") == ({}, [])


def test_the_same_name_is_written_over_and_nothing_else_is_left(tmp_path):
    write(tmp_path, {NAME: 1})
    write(tmp_path, {NAME: 2})
    assert read(tmp_path) == {NAME: 2}
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.json"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": [1, 2', "JSONDecodeError"),
        (b"", "JSONDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        (b"{\xff}", "UnicodeDecodeError"),
        (b'"' + b" " * MAX_FILE_BYTES + b'"', f"more than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_file_that_is_none_is_said_and_left_out(tmp_path, content, why):
    write(tmp_path, {NAME: {}, OTHER: "sound"})
    (tmp_path / f"{NAME}.json").write_bytes(content)
    found, (said,) = ignored(tmp_path)
    assert found == {OTHER: "sound"}
    assert why in said


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / f"{NAME}.json")
    found, (said,) = ignored(tmp_path)
    assert found == {}
    assert "no file" in said


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "notes.json").write_text("mine")
    write(tmp_path, {NAME: 1})
    assert ignored(tmp_path) == ({NAME: 1}, [])
    assert (tmp_path / "notes.json").read_text() == "mine"


def test_the_oldest_files_go_when_there_are_too_many(tmp_path):
    names = [f"costs-{i:032x}" for i in range(MAX_FILES + 3)]
    for i, name in enumerate(names):
        (tmp_path / f"{name}.json").write_text("1")
        os.utime(tmp_path / f"{name}.json", (i, i))
    assert list(read(tmp_path)) == names[: -MAX_FILES - 1 : -1], "the newest"
    write(tmp_path, {NAME: 2})
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {NAME, *names[4:]}


def test_a_directory_that_cannot_be_used_costs_a_line(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    with capture_logs() as logs:
        write(place, {NAME: 1})
        assert read(place) == {}
    assert [entry["event"] for entry in logs] == ["cache.not_written", "cache.ignored"]


# -- from one run to the next ---------------------------------------------------------------


async def test_one_run_gets_what_the_last_one_gave(tmp_path):
    taken: list[Any] = []

    def take(forms):
        taken.append(forms)
        return {}

    async with KeptForms(str(tmp_path), take, lambda: {NAME: 1}):
        assert taken == [{}]
    async with KeptForms(str(tmp_path), take, dict) as kept:
        assert taken == [{}, {NAME: 1}]
        await kept.write()
    kept_then = await asyncio.to_thread(read, tmp_path)
    assert kept_then == {NAME: 1}, "one that gives nothing writes nothing"


async def test_an_object_of_which_its_owner_can_make_nothing_is_said(tmp_path):
    await asyncio.to_thread(write, tmp_path, {NAME: 1})
    with capture_logs() as logs:
        async with KeptForms(str(tmp_path), lambda forms: dict.fromkeys(forms, "no costs"), dict):
            pass
    assert [(entry["event"], entry["why"]) for entry in logs] == [("cache.ignored", "no costs")]
    assert str(tmp_path / f"{NAME}.json") == logs[0]["file"]


async def test_without_a_directory_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with KeptForms("", lambda _forms: {}, lambda: {NAME: 1}) as kept:
        await kept.write()
    assert list(tmp_path.iterdir()) == []
