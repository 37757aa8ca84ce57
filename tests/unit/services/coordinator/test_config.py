from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.services.coordinator.config import CoordinatorConfig


def test_the_defaults_are_a_service_on_this_machine():
    config = CoordinatorConfig()
    assert config.num_batches == 2
    assert config.drafters


@pytest.mark.parametrize(
    "setting",
    [
        {"num_batches": 0},
        {"num_batches": 9},
        {"max_rows": 0},
        {"max_batch_size": 65},
        {"max_draft_tokens": 0},
        {"max_draft_tokens": 33},
        {"num_draft_tokens": -1},
        {"num_draft_tokens": 17},
        {"prefill_budget_tokens": 0},
        {"max_waiting_requests": -1},
        {"q_width": 0},
        {"q_width": 65},
        {"link": "pigeon"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named_with_its_value(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        CoordinatorConfig(**setting)


def test_a_coordinator_without_a_verifier_is_refused():
    with pytest.raises(ConfigError, match="verifier=''"):
        CoordinatorConfig(verifier="")


def test_k_may_be_0_and_nobody_may_draft():
    assert CoordinatorConfig(num_draft_tokens=0, drafters=()).drafters == ()
