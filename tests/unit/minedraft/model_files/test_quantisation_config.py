"""Which quantisations of config.json are served, and that all others are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.json_file import JsonObject
from minedraft.model_files.quantisation import MAX_GROUP, Layout
from minedraft.model_files.quantisation_config import read_quantisation
from tests.quantised_models import FORMS

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def read(settings):
    return read_quantisation(JsonObject(Path("config.json"), {"quantization_config": settings}))


def test_no_settings_are_no_quantisation():
    assert read(None) is None
    assert read_quantisation(JsonObject(Path("config.json"), {})) is None


@pytest.mark.parametrize("form", FORMS)
def test_every_served_format_is_read(form):
    assert read(FORMS[form][0]) is not None


def test_gptq_says_how_its_zero_points_are_stored():
    first = read(GPTQ)
    assert (first.layout, first.bits, first.group) == (Layout.GPTQ, 4, 128)
    assert first.zeros_less_one
    assert not read(GPTQ | {"checkpoint_format": "gptq_v2"}).zeros_less_one
    assert read(GPTQ | {"group_size": -1}).group is None
    assert read(GPTQ | {"dynamic": {"-:.*lm_head": {}}}) == first  # leaves layers out, no more


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (GPTQ, "int4 (gptq, groups of 128)"),
        (GPTQ | {"bits": 8, "group_size": -1}, "int8 (gptq)"),
        (FP8, "fp8 (fp8, blocks of 128 x 128)"),
    ],
)
def test_what_is_served_is_said_in_a_few_words(settings, words):
    assert read(settings).describe() == words


def test_fp8_asks_for_activations_that_are_not_quantised_here():
    assert read(FP8 | {"activation_scheme": "dynamic"}).quantises_activations
    assert not read(GPTQ).quantises_activations


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "quant_method is null, want one of gptq, awq, fp8, compressed-tensors"),
        ({"quant_method": "bitsandbytes"}, "quant_method is 'bitsandbytes', want"),
        ({"quant_method": ["gptq"]}, "quant_method is a list, want a string"),
        (GPTQ | {"bits": 3}, r"quantization_config\.bits is 3, want 4 or 8"),
        (GPTQ | {"bits": True}, "bits is true"),
        (GPTQ | {"bits": "4"}, "bits is '4'"),
        (GPTQ | {"group_size": 0}, "group_size is 0, want -1, or a multiple of 8"),
        (GPTQ | {"group_size": 100}, "group_size is 100"),
        (GPTQ | {"group_size": MAX_GROUP + 8}, f"group_size is {MAX_GROUP + 8}"),
        (GPTQ | {"group_size": None}, "group_size is null"),
        (GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin', want gptq or"),
        (GPTQ | {"format": "bitblas"}, r"\.format is 'bitblas', want gptq or"),
        (GPTQ | {"is_marlin_format": True}, "is_marlin_format is true"),
        (GPTQ | {"pack_dtype": "int8"}, "pack_dtype is 'int8'"),
        (GPTQ | {"dynamic": {"+:.*q_proj": {"bits": 8}}}, r"dynamic is '\+:\.\*q_proj'"),
        (GPTQ | {"desc_act": "yes"}, "desc_act is 'yes'"),
        (AWQ | {"bits": 8}, "bits is 8, want 4"),
        (AWQ | {"version": "gemv"}, "version is 'gemv', want gemm"),
        (AWQ | {"format": "marlin"}, "format is 'marlin', want gemm"),
        (AWQ | {"zero_point": False}, "zero_point is false, want true"),
        (AWQ | {"backend": "llm-awq"}, "backend is 'llm-awq'"),
        (FP8 | {"activation_scheme": "static"}, "activation_scheme is 'static', want dynamic"),
        (FP8 | {"fmt": "e5m2"}, "fmt is 'e5m2'"),
        (FP8 | {"expert_dtype": "fp4"}, "expert_dtype is 'fp4'"),
        (FP8 | {"modules_to_convert": ["embed"]}, "modules_to_convert is a list"),
        (FP8 | {"weight_block_size": None}, r"weight_block_size is '\[\]', want rows"),
        (FP8 | {"weight_block_size": [128, 0]}, r"weight_block_size is '\[128, 0\]'"),
        ([GPTQ], "quantization_config is a list, want an object"),
        ("awq", "quantization_config is 'awq', want an object"),
    ],
)
def test_what_is_not_served_is_refused_by_field_and_value(settings, said):
    with pytest.raises(ModelError, match=said):
        read(settings)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"text_config": {"quantization_config": GPTQ}}, r"text_config\.quantization_config"),
        ({"compression_config": GPTQ}, "compression_config is an object"),
    ],
)
def test_settings_elsewhere_in_the_file_are_refused(values, said):
    with pytest.raises(ModelError, match=said):
        read_quantisation(JsonObject(Path("config.json"), values))
