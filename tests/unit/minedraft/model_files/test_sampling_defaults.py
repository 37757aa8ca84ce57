from __future__ import annotations

import json

import pytest

from minedraft.errors import ModelError
from minedraft.model_files.sampling_defaults import read_sampling_defaults
from minedraft.types import NO_DEFAULTS, SamplingDefaults


def read(directory, **values):
    (directory / "generation_config.json").write_text(json.dumps(values))
    return read_sampling_defaults(directory)


def test_a_directory_without_the_file_recommends_nothing(tmp_path):
    assert read_sampling_defaults(tmp_path) == NO_DEFAULTS


def test_what_vllm_takes_is_taken_and_the_rest_left_alone(tmp_path):
    found = read(
        tmp_path,
        do_sample=True,
        eos_token_id=[1, 2],
        max_new_tokens=2048,
        min_p=0.05,
        repetition_penalty=1.1,
        temperature=0.7,
        top_k=20,
        top_p=0.8,
        transformers_version="4",
    )
    assert found == SamplingDefaults(0.7, 20, 0.8, 0.05, 1.1, 2048)


def test_what_is_null_or_off_recommends_accordingly(tmp_path):
    assert read(tmp_path, temperature=None, top_p=None) == NO_DEFAULTS
    assert read(tmp_path, top_k=-1, temperature=0).top_k == 0
    assert read(tmp_path, top_k=0, temperature=0).temperature == 0.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", 10**400),
        ("top_k", 1.5),
        ("top_k", -2),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", -1),
        ("repetition_penalty", 0),
        ("max_new_tokens", 0),
        ("max_new_tokens", 2**40),
    ],
)
def test_a_value_out_of_range_is_refused_by_file_and_field(tmp_path, field, value):
    with pytest.raises(ModelError, match=rf"generation_config.json: {field}"):
        read(tmp_path, **{field: value})
