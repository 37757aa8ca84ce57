"""The cache: a directory is there whole or not at all, and one process makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ConfigError
from minedraft.hub.cache import build_directory, cache_root, is_current, locked


def fill(text):
    return lambda directory: (directory / "model").write_text(text)


def unexpected(directory):
    raise AssertionError("must not be built")


def test_the_argument_wins_over_the_environment_over_the_home(monkeypatch):
    monkeypatch.setenv("MINEDRAFT_CACHE", "/somewhere")
    assert cache_root("/here") == Path("/here")
    assert cache_root() == Path("/somewhere")
    monkeypatch.setenv("MINEDRAFT_CACHE", "")
    assert cache_root() == Path.home() / ".cache/minedraft"


def test_a_directory_is_built_once(tmp_path):
    first = build_directory(tmp_path, "m", {"v": 1}, fill("a"))
    assert build_directory(tmp_path, "m", {"v": 1}, unexpected) == first
    assert (first / "model").read_text() == "a"
    assert is_current(first, {"v": 1})


def test_another_provenance_replaces_it(tmp_path):
    build_directory(tmp_path, "m", {"v": 1}, fill("a"))
    path = build_directory(tmp_path, "m", {"v": 2}, fill("b"))
    assert (path / "model").read_text() == "b"
    assert [p.name for p in path.parent.iterdir()] == ["m"]


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def fail(directory):
        (directory / "half").write_text("x")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        build_directory(tmp_path, "m", {"v": 1}, fail)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failed_rebuild_leaves_the_old_directory(tmp_path):
    path = build_directory(tmp_path, "m", {"v": 1}, fill("a"))

    def fail(directory):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        build_directory(tmp_path, "m", {"v": 2}, fail)
    assert (path / "model").read_text() == "a"


def test_the_leavings_of_a_killed_process_are_swept_and_never_used(tmp_path):
    dead = tmp_path / "models" / ".m.dead"
    dead.mkdir(parents=True)
    (dead / "model").write_text("half")
    build_directory(tmp_path, "m", {"v": 1}, fill("a"))
    assert not dead.exists()


def test_a_directory_without_provenance_is_not_taken(tmp_path):
    (tmp_path / "models" / "m").mkdir(parents=True)
    path = build_directory(tmp_path, "m", {"v": 1}, fill("a"))
    assert (path / "model").exists()


def test_other_users_can_read_what_is_built(tmp_path):
    def private(directory):
        (directory / "model").touch(mode=0o600)

    path = build_directory(tmp_path, "m", {"v": 1}, private)
    assert path.stat().st_mode & 0o777 == 0o755
    assert (path / "model").stat().st_mode & 0o777 == 0o644


def test_a_held_lock_is_an_error_that_names_it(tmp_path):
    with (
        locked(tmp_path, "m"),
        pytest.raises(ConfigError, match=r"m\.lock has been held"),
        locked(tmp_path, "m", timeout_s=0.01),
    ):
        raise AssertionError("must not be entered")


def test_locks_of_two_names_do_not_meet_and_a_lock_is_given_back(tmp_path):
    with locked(tmp_path, "a"), locked(tmp_path, "b", timeout_s=0.01):
        pass
    with locked(tmp_path, "a", timeout_s=0.01):
        pass


def test_a_cache_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file cannot be used"), locked(tmp_path / "file", "m"):
        raise AssertionError("must not be entered")
