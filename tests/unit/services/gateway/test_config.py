"""services/gateway/config.py: what is refused before anything is served."""

from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.security.config import SecurityConfig
from minedraft.services.gateway.config import GatewayConfig


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "8000"},
        {"listen": "unix:/tmp/x"},
        {"listen": "0.0.0.0:8000"},
        {"listen": "0.0.0.0:8000", "security": SecurityConfig(token_file="tokens")},
        {"coordinator": "host"},
        {"max_body_bytes": 0},
        {"max_connections": 0},
        {"request_timeout_s": 0.0},
        {"comment_s": float("nan")},
        {"slow_reader_s": 60.0},
        {"grace_s": -1.0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used(settings):
    with pytest.raises(ConfigError):
        GatewayConfig(**settings)


def test_beyond_loopback_if_somebody_says_so():
    GatewayConfig(listen="0.0.0.0:8000", security=SecurityConfig(insecure=True))
