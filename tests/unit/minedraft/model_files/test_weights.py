"""Weights are whole safetensors, told from their headers."""

from __future__ import annotations

import json
import os
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from minedraft.errors import ModelError
from minedraft.model_files.weights import MAX_HEADER_BYTES, check_weights, read_header


@pytest.fixture
def directory(tmp_path):
    tensors = {"a": np.zeros((3, 4), np.float32), "b": np.zeros((), np.int8), "c": np.zeros((0, 5))}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def refused(directory) -> str:
    with pytest.raises(ModelError) as caught:
        check_weights(directory)
    message = str(caught.value)
    assert str(directory) in message
    assert "\n" not in message
    return message.replace(f"{directory}/", "")


def write(directory, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_shapes_and_elements_are_read(directory):
    weights = check_weights(directory)
    assert {name: facts.shape for name, facts in weights.tensors.items()} == {
        "a": (3, 4),
        "b": (),
        "c": (0, 5),
    }
    assert weights.num_elements == 13


@pytest.mark.parametrize("num_bytes", [0, 5, 8, 60, -1])
def test_a_file_cut_short_is_refused(directory, num_bytes):
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:num_bytes])
    assert refused(directory).startswith("model.safetensors: ")


def test_what_is_behind_the_last_tensor_is_refused(directory):
    with (directory / "model.safetensors").open("ab") as file:
        file.write(b"x")
    assert "size is" in refused(directory)


def test_a_git_lfs_pointer_says_what_to_do(directory):
    (directory / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22\n"
    )
    assert "model.safetensors: is a git-lfs pointer" in refused(directory)


def test_a_fifo_and_a_device_are_refused_unopened(directory):
    file = directory / "model.safetensors"
    file.unlink()
    os.mkfifo(file)
    assert refused(directory) == "model.safetensors: is a FIFO, want a regular file"
    file.unlink()
    file.symlink_to("/dev/zero")
    assert refused(directory) == "model.safetensors: is a device, want a regular file"
    file.unlink()
    file.symlink_to(directory / "nowhere")
    assert refused(directory) == "model.safetensors: is missing"


def test_a_header_over_the_limit_is_refused_unread(directory):
    with (directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER_BYTES + 1))
        file.truncate(1 << 40)
    assert f"want at most {MAX_HEADER_BYTES} bytes" in refused(directory)


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (b"[]", b"", "is a list, want a JSON object"),
        (b'{"a":NaN}', b"", "NaN is no number"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, b"", "nested deeper"),
        ({"a": 3}, b"", "a is 3, want an object"),
        ({"a": {"dtype": "F32"}}, b"", "a.data_offsets is null"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"", "a.shape"),
        ({"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}, b"", "a.shape"),
        ({"a": {"dtype": "X", "shape": [1], "data_offsets": [0, 4]}}, b"", "a.dtype is 'X'"),
        ({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"1234", "says"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"123", "size is"),
    ],
)
def test_a_header_that_cannot_be_is_refused(directory, header, data, message):
    write(directory, header, data)
    assert message in refused(directory)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": ["a"]}, "weight_map is a list, want an object"),
        ({"weight_map": None}, "weight_map is null, want an object"),
        ({"weight_map": {"x": 3}}, "weight_map['x'] is 3, want the name of a file beside it"),
        ({"weight_map": {"x": "../y.safetensors"}}, "want the name of a file beside it"),
        ([], "is a list, want a JSON object"),
    ],
)
def test_an_index_of_another_shape_is_refused(directory, index, message):
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert message in refused(directory)


def test_shapes_of_one_file(directory):
    assert read_header(directory / "model.safetensors")["a"].shape == (3, 4)
