"""A file of a model directory is regular, bounded and of the shape wanted, or refused in a line."""

from __future__ import annotations

import json
import os
import socket

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import (
    MAX_NESTING,
    JsonObject,
    check_regular,
    read_bytes,
    read_object,
)


def refused(path, limit=1 << 20) -> str:
    with pytest.raises(ModelError) as caught:
        read_object(path, limit)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def test_what_is_not_there_is_none(tmp_path):
    assert read_object(tmp_path / "x") is None
    assert read_bytes(tmp_path / "nowhere" / "x") is None
    assert check_regular(tmp_path / "x") is None


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "x")
    assert refused(tmp_path / "x") == "FILE: is a FIFO, want a regular file"
    with pytest.raises(ModelError, match="is a FIFO"):
        check_regular(tmp_path / "x")


def test_a_device_a_directory_and_a_socket_are_refused(tmp_path):
    (tmp_path / "x").symlink_to("/dev/zero")
    assert refused(tmp_path / "x") == "FILE: is a device, want a regular file"
    (tmp_path / "y").mkdir()
    assert refused(tmp_path / "y") == "FILE: is a directory, want a regular file"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "z"))
        assert refused(tmp_path / "z") == "FILE: is a socket, want a regular file"


def test_a_loop_of_links_is_refused(tmp_path):
    (tmp_path / "x").symlink_to(tmp_path / "x")
    assert "cannot be read" in refused(tmp_path / "x")


def test_a_link_to_a_regular_file_is_followed(tmp_path):
    (tmp_path / "blob").write_text("{}")
    (tmp_path / "x").symlink_to(tmp_path / "blob")
    found = read_object(tmp_path / "x")
    assert found is not None
    assert found.values == {}


def test_a_file_over_the_limit_is_refused_unread(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it would take the machine's memory
    assert refused(tmp_path / "x", 100) == f"FILE: size is {1 << 40}, want at most 100 bytes"
    (tmp_path / "x").write_bytes(b"{" + b" " * 98 + b"}")
    assert read_object(tmp_path / "x", 100) is not None
    assert read_object(tmp_path / "x", 101) is not None
    assert "want at most 99 bytes" in refused(tmp_path / "x", 99)


def test_a_git_lfs_pointer_says_what_to_do(tmp_path):
    (tmp_path / "x").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 17209920\n"
    )
    assert "is a git-lfs pointer, want the file itself: run `git lfs pull`" in refused(
        tmp_path / "x"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("\xff", "is no JSON"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": [-Infinity]}', "-Infinity is no number of JSON"),
        ('{"a": ' + "9" * 5000 + "}", "is no JSON"),
        ("[1]", "FILE is a list, want a JSON object"),
        ('"x"', "FILE is 'x', want a JSON object"),
        ("null", "FILE is null, want a JSON object"),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path, content, why):
    (tmp_path / "x").write_bytes(content.encode("latin-1"))
    assert why in refused(tmp_path / "x")


@pytest.mark.parametrize("levels", [MAX_NESTING, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [('{"a":', "}"), ("[", "]")])
def test_deep_nesting_is_refused(tmp_path, levels, opened, closed):
    (tmp_path / "x").write_text('{"a":' + opened * levels + "1" + closed * levels + "}")
    assert refused(tmp_path / "x") == f"FILE: is nested deeper than {MAX_NESTING} levels"


def test_the_deepest_nesting_is_read(tmp_path):
    levels = MAX_NESTING - 1
    (tmp_path / "x").write_text('{"a":' + "[" * levels + "]" * levels + "}")
    assert read_object(tmp_path / "x") is not None


@pytest.mark.parametrize(
    ("ask", "value", "message"),
    [
        ("text", 3, "FILE: top.field is 3, want a string"),
        ("text", ["a"], "FILE: top.field is a list, want a string"),
        ("flag", "yes", "FILE: top.field is 'yes', want true or false"),
        ("integer", "7", "FILE: top.field is '7', want a whole number from 0 to 9"),
        ("integer", True, "FILE: top.field is true, want a whole number from 0 to 9"),
        ("integer", 7.0, "FILE: top.field is 7.0, want a whole number from 0 to 9"),
        ("integer", 10, "FILE: top.field is 10, want a whole number from 0 to 9"),
        ("part", [], "FILE: top.field is a list, want an object"),
        ("array", {}, "FILE: top.field is an object, want a list"),
        ("parts", [{}, 3], "FILE: top.field[1] is 3, want an object"),
    ],
)
def test_a_field_of_another_shape_is_refused(tmp_path, ask, value, message):
    part = JsonObject(tmp_path, {"field": value}, "top")
    more = {"integer": (0, 9), "flag": (False,)}.get(ask, ())
    with pytest.raises(ModelError) as caught:
        getattr(part, ask)("field", *more)
    assert str(caught.value).replace(str(tmp_path), "FILE") == message


def test_a_long_or_odd_value_is_quoted_in_part_and_in_one_line(tmp_path):
    with pytest.raises(ModelError) as caught:
        JsonObject(tmp_path, {"field": "\n\x1b[31m" + "x" * 10_000}).integer("field", 0, 9)
    assert len(str(caught.value)) < len(str(tmp_path)) + 120
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_fields_that_are_not_there_have_defaults(tmp_path):
    part = JsonObject(tmp_path, {"null": None})
    for field in ("null", "missing"):
        assert part.text(field) is part.part(field) is part.integer(field, 0, 1) is None
        assert part.flag(field, default=True) is True
        assert part.array(field) == part.parts(field) == []


def test_a_shape_is_named_from_the_top(tmp_path):
    (tmp_path / "x").write_text(json.dumps({"a": {"b": [{"c": 3}]}}))
    found = read_object(tmp_path / "x")
    assert found is not None
    inner = found.part("a")
    assert inner is not None
    assert inner.parts("b")[0].name("c") == "a.b[0].c"
