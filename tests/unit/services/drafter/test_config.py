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
        {"num_blocks": 0},
        {"block_size": 0},
        {"block_size": 1025},
        {"max_catch_up_tokens": 0},
        {"max_catch_up_tokens": 2**20 + 1},
        {"threads": 0},
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


@pytest.mark.parametrize("address", ["localhost", "50052", "localhost:99999"])
@pytest.mark.parametrize("name", ["listen", "health_listen"])
def test_where_it_listens_is_an_address(name, address):
    with pytest.raises(ConfigError, match=f"{name}='{address}': want host:port"):
        DrafterConfig("m", **{name: address})
