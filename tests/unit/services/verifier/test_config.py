from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.services.verifier.config import VerifierConfig


def test_defaults_need_only_a_model():
    assert VerifierConfig("models/target").acceptance == "coupled"


@pytest.mark.parametrize(
    "setting",
    [
        {"tp_size": 0},
        {"tp_timeout_s": 0.0},
        {"acceptance": "hopeful"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named_with_its_value(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        VerifierConfig("m", **setting)


def test_ranks_cannot_share_one_gpu():
    with pytest.raises(ConfigError, match="device='cuda:1': ranks take one GPU each"):
        VerifierConfig("m", tp_size=2, device="cuda:1")


def test_a_verifier_without_a_model_is_refused():
    with pytest.raises(ConfigError, match="model=''"):
        VerifierConfig("")


@pytest.mark.parametrize("address", ["verifier", "verifier:0", "http://verifier:1"])
def test_where_drafters_reach_it_is_an_address(address):
    with pytest.raises(ConfigError, match=f"link_address='{address}': want host:port"):
        VerifierConfig(model="m", link_address=address)
