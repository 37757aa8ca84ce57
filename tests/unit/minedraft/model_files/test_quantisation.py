from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject
from minedraft.model_files.quantisation import MAX_GROUP, read_bits, read_block, read_group


def settings(**values):
    return JsonObject(Path("config.json"), values)


def test_a_group_is_a_number_of_inputs_or_the_whole_row():
    assert read_group(settings(group_size=32)) == 32
    assert read_group(settings(group_size=MAX_GROUP)) == MAX_GROUP
    assert read_group(settings(group_size=-1)) is None


def test_a_block_has_two_sides():
    assert read_block(settings(size=[1, MAX_GROUP]), "size") == (1, MAX_GROUP)
    for sides in ([128], [128, 128, 1], [128, 1.5], [128, MAX_GROUP + 1]):
        with pytest.raises(ModelError, match=r"size is .* want rows and columns"):
            read_block(settings(size=sides), "size")


def test_bits_are_one_of_those_served():
    assert read_bits(settings(bits=8), "bits", 4, 8) == 8
    with pytest.raises(ModelError, match="bits is 2, want 4 or 8"):
        read_bits(settings(bits=2), "bits", 4, 8)
