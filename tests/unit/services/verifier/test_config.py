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


@pytest.mark.parametrize(
    "setting",
    [
        {"spare_cpus": "1"},
        {"spare_cpus": "1", "cpus": "0-1"},
        {"spare_cpus": "2-3", "cpus": "0-1", "tp_size": 2},
    ],
    ids=str,
)
def test_spare_cores_are_beside_the_own_ones_of_one_rank(setting):
    with pytest.raises(ConfigError, match=f"spare_cpus='{setting['spare_cpus']}': needs cpus"):
        VerifierConfig(model="m", **setting)
    assert VerifierConfig(model="m", cpus="0", spare_cpus="1-3").spare_cpus == "1-3"
