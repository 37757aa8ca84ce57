from __future__ import annotations

import pytest

from minedraft.errors import ConfigError
from minedraft.security.config import SecurityConfig, is_loopback

CERT = {"tls_cert": "c", "tls_key": "k"}
BEYOND = ["0.0.0.0:50050", "[::]:50050", ":50050", "10.0.0.3:1", "verifier:50052", "[fe80::1]:1"]


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.9.9.9:5", "localhost:1", "[::1]:50051", "::1", "127.0.0.1"]
)
def test_loopback_is_recognised_and_needs_nothing(address):
    assert is_loopback(address)
    SecurityConfig().check_server("listen", address)


@pytest.mark.parametrize(
    "address",
    [*BEYOND, "", "0.0.0.0", "::", "unix:/tmp/x", "localhost.evil.org:1", "127.0.0.1.evil.org:1"],
)
def test_everything_else_is_beyond(address):
    assert not is_loopback(address)


@pytest.mark.parametrize("address", BEYOND)
def test_beyond_loopback_somebody_must_be_asked_for(address):
    with pytest.raises(ConfigError, match=r"link_bind_host=.*tls_cert.*insecure"):
        SecurityConfig().check_server("link_bind_host", address)
    with pytest.raises(ConfigError, match="listen="):  # encrypted, but open to everybody
        SecurityConfig(**CERT).check_server("listen", address)
    SecurityConfig(**CERT, tls_ca="a").check_server("listen", address)
    SecurityConfig(**CERT, token_file="t").check_server("listen", address)
    SecurityConfig(insecure=True).check_server("listen", address)


@pytest.mark.parametrize("insecure", [True, False])
def test_tokens_never_travel_in_the_clear(insecure):
    config = SecurityConfig(token_file="t", insecure=insecure)
    with pytest.raises(ConfigError, match=r"token_file='t'.*TLS"):
        config.check_server("listen", "0.0.0.0:1")
    with pytest.raises(ConfigError, match=r"token_file='t'.*tls_ca"):
        config.check_client("coordinator:50050")
    config.check_server("listen", "127.0.0.1:1")
    config.check_client("127.0.0.1:1")
    SecurityConfig(token_file="t", tls_ca="a").check_client("coordinator:50050")


@pytest.mark.parametrize("half", [{"tls_cert": "c"}, {"tls_key": "k"}])
def test_a_certificate_without_its_key_is_refused(half):
    with pytest.raises(ConfigError, match=r"tls_cert=.* and tls_key="):
        SecurityConfig(**half)


def test_a_server_with_an_authority_alone_is_refused():
    with pytest.raises(ConfigError, match="tls_ca='a'"):
        SecurityConfig(tls_ca="a").check_server("listen", "127.0.0.1:1")


def test_every_setting_has_a_variable_and_none_is_a_secret_itself():
    from dataclasses import fields

    names = {field.name: field.metadata["env"] for field in fields(SecurityConfig)}
    assert names == {
        "tls_cert": "MINEDRAFT_TLS_CERT",
        "tls_key": "MINEDRAFT_TLS_KEY",
        "tls_ca": "MINEDRAFT_TLS_CA",
        "token_file": "MINEDRAFT_TOKEN_FILE",
        "insecure": "MINEDRAFT_INSECURE",
    }
