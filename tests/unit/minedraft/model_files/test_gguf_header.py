"""The header of a GGUF file: what a hostile one says is refused by name, quickly and unread."""

from __future__ import annotations

import struct
import time

import gguf
import numpy as np
import pytest

from minedraft.errors import ModelError
from minedraft.model_files.gguf_header import (
    MAX_ELEMENTS,
    MAX_SETTINGS,
    MAX_TENSORS,
    GgufType,
    read_gguf_header,
)


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def setting(key, kind, content):
    return text(key) + struct.pack("<I", kind) + content


NAME = setting("general.architecture", 8, text("llama"))


def tensor(name="a", sides=(32, 2), kind=0, offset=0):
    shape = struct.pack(f"<I{len(sides)}Q", len(sides), *sides)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def write(path, settings=(NAME,), tensors=(), data=b"", *, version=3, counts=None):
    num_tensors, num_settings = counts or (len(tensors), len(settings))
    content = b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_settings)
    content += b"".join(settings) + b"".join(tensors)
    file = path / "m.gguf"
    file.write_bytes(content + bytes(-len(content) % 32) + data)
    return file


def test_a_file_of_the_library_is_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_token_list(["a", "b"])
    writer.add_float32("x", 0.5)
    writer.add_array("y", [1, 2, 3])
    one = np.arange(128, dtype=np.float32).reshape(2, 64)
    writer.add_tensor("plain", one)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("packed", gguf.quantize(one, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf_header(tmp_path / "m.gguf")
    assert header.architecture == "llama"
    assert header.describe() == "gguf (Q8_0)"
    content = (tmp_path / "m.gguf").read_bytes()
    plain, packed = header.tensors["plain"], header.tensors["packed"]
    assert (plain.shape, plain.kind) == ((2, 64), GgufType.F32)
    assert content[plain.begin : plain.begin + plain.num_bytes] == one.tobytes()
    assert (packed.shape, packed.num_bytes) == ((2, 64), 2 * 2 * 34)
    assert header.weights().tensors["packed"].dtype == "Q8_0"


LIST_OF = struct.Struct("<IQ")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"version": 1}, "version is 1, want 2 or 3"),
        ({"counts": (2**63, 1)}, f"tensor count is {2**63}, want at most {MAX_TENSORS}"),
        ({"counts": (0, 2**40)}, f"settings count is {2**40}, want at most {MAX_SETTINGS}"),
        ({"counts": (MAX_TENSORS, 1)}, "dimensions is 0"),
        ({"settings": ()}, r"general\.architecture is null"),
        ({"settings": (text("k" * 2000),)}, "name of a setting: length is 2000, want at most 1024"),
        ({"settings": (setting("k", 8, struct.pack("<Q", 2**60)),)}, f"k: length is {2**60}"),
        ({"settings": (setting("k", 8, struct.pack("<Q", 2**20)),)}, "k: end is"),
        ({"settings": (setting("k", 99, b""),)}, "k: type is 99"),
        ({"settings": (setting("k", 9, LIST_OF.pack(4, 2**60)),)},
         f"k is {2**60}, want at most {MAX_ELEMENTS}"),
        ({"settings": (setting("k", 9, LIST_OF.pack(4, MAX_ELEMENTS)),)}, "k: end is"),
        ({"settings": (setting("k", 9, LIST_OF.pack(8, MAX_ELEMENTS)),)}, "k: end is"),
        ({"settings": (setting("k", 9, LIST_OF.pack(9, 1)),)}, "k: type is 9, want a type of"),
        ({"settings": (NAME, setting("split.count", 2, struct.pack("<H", 3)))},
         r"split\.count is 3, want one file"),
        ({"settings": (NAME, setting("general.alignment", 4, struct.pack("<I", 24)))},
         r"general\.alignment is 24, want a power of two"),
        ({"settings": (NAME, setting("general.alignment", 4, struct.pack("<I", 0)))},
         r"general\.alignment is 0"),
        ({"tensors": (tensor(kind=10),)}, "a: type is 10, want one of F32, F16, Q4_0"),
        ({"tensors": (tensor(sides=()),)}, "a: dimensions is 0, want 1 to 4"),
        ({"tensors": (tensor(sides=(1, 1, 1, 1, 1)),)}, "a: dimensions is 5"),
        ({"tensors": (tensor(sides=(2**62, 2**62)),)}, f"a: shape is {2**62}"),
        ({"tensors": (tensor(sides=(2**40, 2**40)),)}, "a: end is .* the size of the file"),
        ({"tensors": (tensor(sides=(0, 4)),)}, "a: shape is 0"),
        ({"tensors": (tensor(sides=(33, 2), kind=8),)}, "a: columns is 33, want a multiple of 32"),
        ({"tensors": (tensor(sides=(64, 2), kind=12),)}, "columns is 64, want a multiple of 256"),
        ({"tensors": (tensor(),), "data": bytes(255)}, "a: end is .* the size of the file"),
        ({"tensors": (tensor(offset=2**63),), "data": bytes(256)}, "a: end is"),
        ({"tensors": (tensor(), tensor()), "data": bytes(256)}, "tensor is 'a', want a name of"),
    ],
)  # fmt: skip
def test_a_hostile_header_is_refused_by_name_and_at_once(tmp_path, parts, said):
    file = write(tmp_path, **parts)
    begin = time.process_time()
    with pytest.raises(ModelError, match=said) as caught:
        read_gguf_header(file)
    assert time.process_time() - begin < 0.5
    assert str(file) in str(caught.value)


def test_lists_are_bounded_together(tmp_path):
    empty = struct.pack("<Q", 0)
    many = [setting(f"k{i}", 9, LIST_OF.pack(8, 3000) + empty * 3000) for i in range(1500)]
    with pytest.raises(ModelError, match=r"elements of all lists is .* want at most"):
        read_gguf_header(write(tmp_path, settings=(NAME, *many)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "size is 0, want a GGUF file"),
        (b"GGUF", "version: end is 8"),
        (b"GGML" + bytes(64), "first bytes is b'GGML'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-lfs pointer"),
    ],
)
def test_what_is_no_gguf_file_is_refused(tmp_path, content, said):
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=said):
        read_gguf_header(file)


def test_every_cut_of_a_good_file_is_refused(tmp_path):
    file = write(tmp_path, tensors=(tensor(),), data=bytes(256))
    read_gguf_header(file)
    content = file.read_bytes()
    for size in range(len(content)):
        file.write_bytes(content[:size])
        with pytest.raises(ModelError):
            read_gguf_header(file)
