"""Which settings of compressed-tensors are served, and that all others are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.compressed_tensors import read_compressed_tensors
from minedraft.model_files.json_file import JsonObject
from minedraft.model_files.quantisation import Layout
from tests.quantised_models import compressed


def read(settings):
    return read_compressed_tensors(JsonObject(Path("config.json"), settings))


def int4(**weights):
    return compressed(
        "pack-quantized", **({"num_bits": 4, "strategy": "group", "group_size": 32} | weights)
    )


def scheme(settings, **fields):
    settings["config_groups"]["group_0"] |= fields
    return settings


def test_groups_channels_and_blocks_are_read():
    assert (read(int4()).layout, read(int4()).group) == (Layout.PACKED, 32)
    channel = read(compressed("int-quantized", num_bits=8, strategy="channel"))
    assert (channel.layout, channel.group) == (Layout.INT8, None)
    sides = {"strategy": "block", "block_structure": [128, 64]}
    block = read(compressed("float-quantized", num_bits=8, type="float", **sides))
    assert (block.layout, block.block) == (Layout.FP8_SCALED, (128, 64))


def test_the_old_name_of_a_format_is_served_by_its_type():
    old = {"num_bits": 8, "strategy": "tensor"}
    assert read(compressed("naive-quantized", **old)).layout is Layout.INT8
    assert read(compressed("naive-quantized", type="float", **old)).layout is Layout.FP8_SCALED


def test_dynamic_activations_are_known_and_not_quantised():
    settings = compressed("int-quantized", num_bits=8, strategy="channel")
    scheme(settings, input_activations={"num_bits": 8, "dynamic": True, "strategy": "token"})
    assert read(settings).quantises_activations


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (int4(num_bits=3), r"group_0\.weights\.num_bits is 3, want 4 or 8"),
        (int4(type="float"), "type is 'float', want int, as pack-quantized has"),
        (int4(dynamic=True), "dynamic is true"),
        (int4(group_size=-1), "group_size is -1, want inputs per scale"),
        (int4(group_size=33), "group_size is 33"),
        (int4(strategy="tensor_group"), "strategy is 'tensor_group', want one of group, channel"),
        (compressed("int-quantized", num_bits=4, strategy="channel"), "num_bits is 4, want 8"),
        (compressed("nvfp4-pack-quantized", num_bits=4), "format is 'nvfp4-pack-quantized', want"),
        (int4() | {"format": None}, "format is null"),
        (int4() | {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme is an object, want none"),
        (int4() | {"sparsity_config": {"format": "sparse-24"}}, "format is 'sparse-24', want den"),
        (int4() | {"quantization_status": "frozen"}, "quantization_status is 'frozen'"),
        (int4() | {"transform_config": {"a": 1}}, "transform_config is an object"),
        (int4() | {"config_groups": {}}, "config_groups is 0, want one group"),
        (int4() | {"config_groups": {"a": {}, "b": {}}}, "config_groups is 2, want one group"),
        (int4() | {"config_groups": {"a": [1]}}, "a is a list, want an object"),
        (scheme(int4(), weights=None), "weights is null, want an object"),
        (scheme(int4(), output_activations={"num_bits": 8}), "output_activations is an object"),
        (scheme(int4(), input_activations={"dynamic": False}), "dynamic is false, want true"),
        (scheme(int4(), input_activations={"dynamic": "local"}), "dynamic is 'local', want true"),
    ],
)
def test_what_is_not_served_is_refused_by_field_and_value(settings, said):
    with pytest.raises(ModelError, match=said):
        read(settings)
