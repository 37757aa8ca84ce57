from __future__ import annotations

import pytest

from minedraft.errors import PermissionDeniedError
from minedraft.security.paths import resolve_under


@pytest.fixture
def models(tmp_path):
    models = tmp_path / "models"
    (models / "a" / "b").mkdir(parents=True)
    (tmp_path / "models-private").mkdir()
    return models


def test_a_directory_under_a_root_is_found_by_either_name(models):
    assert resolve_under([models], "a/b") == models / "a" / "b"
    assert resolve_under([models], str(models / "a")) == models / "a"
    assert resolve_under([models], models) == models
    assert resolve_under([models.parent / "other", models], "a") == models / "a"


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "../models-private",
        "a/../../models-private",
        "a/..",
        "missing",
        "",
        "a\0b",
        "~",
        "a/" * 4000,
    ],
)
def test_anything_else_is_refused_by_name(models, path):
    with pytest.raises(PermissionDeniedError, match="path="):
        resolve_under([models], path)


def test_a_sibling_whose_name_begins_alike_is_elsewhere(models):
    with pytest.raises(PermissionDeniedError, match="models-private"):
        resolve_under([models], models.parent / "models-private")


def test_links_are_followed_before_it_is_decided(models, tmp_path):
    (models / "out").symlink_to(tmp_path / "models-private")
    (models / "in").symlink_to(models / "a")
    (models / "loop").symlink_to(models / "loop")
    assert resolve_under([models], "in/b") == models / "a" / "b"
    for name in ("out", "loop"):
        with pytest.raises(PermissionDeniedError, match=name):
            resolve_under([models], name)


def test_a_root_may_itself_be_a_link(models, tmp_path):
    (tmp_path / "alias").symlink_to(models)
    assert resolve_under([tmp_path / "alias"], tmp_path / "alias" / "a") == models / "a"


def test_no_root_allows_nothing(models):
    with pytest.raises(PermissionDeniedError, match="no directory"):
        resolve_under([], models)


def test_a_long_name_is_not_repeated_whole():
    with pytest.raises(PermissionDeniedError) as caught:
        resolve_under([], "x" * 10_000)
    assert len(str(caught.value)) < 400


def test_a_name_beyond_the_roots_is_told_from_one_that_is_missing_but_not_whether_it_exists(models):
    beyond = "is not under"
    for path, why in (
        ("/etc", beyond),
        ("/no/such", beyond),
        (models / "missing", "not found under"),
    ):
        with pytest.raises(PermissionDeniedError, match=f"{why} {models}"):
            resolve_under([models], path)
