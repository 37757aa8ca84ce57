from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.drafter.kinds import KINDS


def test_defaults_need_only_a_model():
    config = DrafterConfig("models/draft")
    assert config.kind == "model"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_configured(kind):
    assert DrafterConfig("m", kind=kind).kind == kind


@pytest.mark.parametrize(
    "setting",
    [
        {"kind": "magic"},
        {"max_catch_up_tokens": 0},
        {"max_catch_up_tokens": 2**20 + 1},
        {"run_ahead": "sometimes"},
        {"run_ahead": "65"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named_with_its_value(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        DrafterConfig("m", **setting)


def test_a_drafter_without_a_model_is_refused():
    with pytest.raises(ConfigError, match="model=''"):
        DrafterConfig("")
