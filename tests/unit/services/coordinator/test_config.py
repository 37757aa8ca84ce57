from __future__ import annotations

import math

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
        {"shape": "round"},
        {"policy": "wise"},
        {"prefill_budget_tokens": 0},
        {"max_waiting_requests": 0},
        {"q_width": 0},
        {"q_width": 65},
        {"link": "pigeon"},
        {"assignment": "random"},
        {"link_timeout_s": 0.0},
        {"link_timeout_s": math.nan},
        {"step_timeout_s": 0.0},
        {"step_timeout_s": math.inf},
        {"reconnect_s": 0.0},
        {"reconnect_s": math.nan},
        {"grace_s": -1.0},
        {"trial_s": -1.0},
        {"trial_s": math.inf},
        {"verifier": ""},
        {"verifier": "nohost"},
        {"verifier": ":50052"},
        {"verifier": "host:0"},
        {"verifier": "host:70000"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named_with_its_value(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        CoordinatorConfig(**setting)


@pytest.mark.parametrize("address", ["nohost", "", "host:", "host:grpc", "dns:host"])
def test_a_drafter_without_host_and_port_is_named(address):
    with pytest.raises(ConfigError, match=f"drafters={address!r}: want .*host:port"):
        CoordinatorConfig(drafters=("host:1", address))


@pytest.mark.parametrize("address", ["host:1", "dns:host:1"])
def test_a_drafter_named_twice_is_refused(address):
    with pytest.raises(ConfigError, match=f"drafters='{address}': named twice"):
        CoordinatorConfig(drafters=(address, "other:1", address))


def test_any_kind_of_address_will_do():
    drafters = ("host:1", "[::1]:65535", "dns:host:1", "unix:/run/drafter")
    assert CoordinatorConfig(verifier="unix:/run/verifier", drafters=drafters).drafters == drafters


def test_k_may_be_0_and_nobody_may_draft():
    assert CoordinatorConfig(num_draft_tokens=0, drafters=()).drafters == ()


@pytest.mark.parametrize("address", ["localhost", "50052", "localhost:99999"])
@pytest.mark.parametrize("name", ["listen", "health_listen"])
def test_where_it_listens_is_an_address(name, address):
    with pytest.raises(ConfigError, match=f"{name}='{address}': want host:port"):
        CoordinatorConfig(**{name: address})


@pytest.mark.parametrize(("shape", "num_batches"), [("auto", 2), ("fixed", 3)])
def test_the_papers_rules_are_for_a_fixed_shape_of_two_batches(shape, num_batches):
    with pytest.raises(ConfigError, match=f"not shape {shape} and {num_batches}"):
        CoordinatorConfig(assignment="paper", shape=shape, num_batches=num_batches)
    assert CoordinatorConfig(assignment="paper", shape="fixed").num_batches == 2


def test_a_port_for_metrics_needs_metrics():
    assert CoordinatorConfig(metrics_listen="127.0.0.1:0", metrics="own").metrics_listen
    with pytest.raises(ConfigError, match=r"metrics_listen=.*: metrics are none"):
        CoordinatorConfig(metrics_listen="127.0.0.1:0", metrics="none")
    with pytest.raises(ConfigError, match="metrics='some', want one of all, own, none"):
        CoordinatorConfig(metrics="some")
