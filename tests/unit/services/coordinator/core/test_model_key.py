from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ConfigError
from minedraft.services.coordinator.core.model_key import ModelKey
from minedraft.types import ModelInfo

MODEL = ModelInfo(
    "name", 50, 99, "", "float32", weights_fingerprint="w", device="cpu x1", kernels="c/avx2"
)


def test_models_that_may_cost_something_else_have_other_keys():
    others = [
        replace(MODEL, **{name: "another"})
        for name in ("weights_fingerprint", "dtype", "device", "kernels", "drafter_kind")
    ]
    assert len({ModelKey.of(model) for model in (MODEL, *others)}) == 6
    assert ModelKey.of(replace(MODEL, name="moved", num_blocks=7)) == ModelKey.of(MODEL)


def test_without_a_fingerprint_the_name_stands_for_it():
    unknown = replace(MODEL, weights_fingerprint="")
    assert ModelKey.of(unknown) != ModelKey.of(replace(unknown, name="another"))


def test_it_survives_its_json_form():
    assert ModelKey.from_json(ModelKey.of(MODEL)._asdict(), "target") == ModelKey.of(MODEL)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ([], "target: want an object with weights_fingerprint, dtype"),
        ({"dtype": "x"}, "target: want an object with"),
        ({**ModelKey()._asdict(), "device": 7}, "target.device: want text of at most 256"),
        ({**ModelKey()._asdict(), "dtype": "x" * 257}, "target.dtype: want text of at most 256"),
    ],
)
def test_a_form_that_is_none_is_refused_by_name(form, message):
    with pytest.raises(ConfigError, match=message):
        ModelKey.from_json(form, "target")
