from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.worker.config import WorkerConfig


def config(**settings) -> WorkerConfig:
    return WorkerConfig(**{"model": "m", "listen": "127.0.0.1:0", **settings})


@pytest.mark.parametrize(
    "setting",
    [
        {"num_blocks": 0},
        {"block_size": 0},
        {"block_size": 1025},
        {"threads": 0},
        {"model": ""},
        {"dtype": "float16"},
        {"kernels": "cuda"},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_named_with_its_value(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        config(**setting)


@pytest.mark.parametrize("address", ["localhost", "50052", "localhost:99999"])
@pytest.mark.parametrize("name", ["listen", "health_listen"])
def test_where_it_listens_is_an_address(name, address):
    with pytest.raises(ConfigError, match=f"{name}='{address}': want host:port"):
        config(**{name: address})


@pytest.mark.parametrize("name", ["listen", "link_bind_host"])
def test_beyond_loopback_it_wants_proof_of_callers(name):
    host = "192.0.2.1:0" if name == "listen" else "192.0.2.1"
    with pytest.raises(ConfigError, match=name):
        config(**{name: host})
