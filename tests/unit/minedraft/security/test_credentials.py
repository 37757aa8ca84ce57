from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
import structlog

from minedraft.errors import ConfigError
from minedraft.security.config import SecurityConfig
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from tests.certificates import Authority

TOKEN = "drafter-token-0123456789"


@pytest.fixture
def config(authority, tmp_path):
    (tmp_path / "tokens").write_text(f"drafter {TOKEN}\n")
    written = authority.write(tmp_path, "drafter")
    return dataclasses.replace(written, token_file=str(tmp_path / "tokens"))


def test_nothing_configured_reads_nothing():
    credentials = Credentials(SecurityConfig(), own=(Role.CLIENT,))
    credentials.watch()
    assert not credentials.refresh()
    assert credentials.own_token == ""


@pytest.mark.parametrize("setting", ["tls_cert", "tls_key", "tls_ca", "token_file"])
def test_a_missing_or_empty_or_huge_file_is_named(config, setting, tmp_path):
    for content in (None, b"", b" \n", b"x" * (2**20 + 1)):
        path = tmp_path / "other"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"{setting}='{path}'"):
            Credentials(dataclasses.replace(config, **{setting: str(path)}))


def test_files_that_are_no_certificates_are_named(config):
    for setting in ("tls_cert", "tls_key", "tls_ca"):
        path = Path(getattr(config, setting))
        before = path.read_bytes()
        path.write_bytes(b"-----BEGIN GARBAGE-----\nMIIB\n")
        with pytest.raises(ConfigError, match=f"{setting}="):
            Credentials(config)
        path.write_bytes(before)


def test_a_key_of_another_certificate_is_refused(config, authority):
    Path(config.tls_key).write_bytes(authority.issue("drafter")[1])
    with pytest.raises(ConfigError, match="tls_key="):
        Credentials(config)


def test_a_changed_file_is_noticed_once(config, authority, tmp_path):
    credentials = Credentials(config, own=(Role.DRAFTER,))
    assert not credentials.refresh()
    authority.write(tmp_path, "drafter")
    Path(config.token_file).write_text(f"drafter {TOKEN}-new\n")
    assert credentials.refresh()
    assert not credentials.refresh()
    assert credentials.generation == 1
    assert credentials.own_token == f"{TOKEN}-new"


def test_half_a_rotation_keeps_what_was_there_and_says_so_once(config, authority, tmp_path):
    credentials = Credentials(config, own=(Role.DRAFTER,))
    Path(config.tls_cert).write_bytes(authority.issue("drafter")[0])  # its key is still to come
    Path(config.token_file).write_text("drafter x")
    with structlog.testing.capture_logs() as lines:
        assert not credentials.refresh()
        assert not credentials.refresh()
    assert [line["event"] for line in lines] == ["credentials.unusable"]
    assert credentials.own_token == TOKEN
    authority.write(tmp_path, "drafter")
    Path(config.token_file).write_text(f"drafter {TOKEN}-new\n")
    assert credentials.refresh()


def test_the_watch_follows_and_ends(config):
    credentials = Credentials(config, own=(Role.DRAFTER,))
    changed = threading.Event()
    refresh = credentials.refresh

    def noticing() -> bool:
        if refresh():
            changed.set()
        return changed.is_set()

    credentials.refresh = noticing  # type: ignore[method-assign]
    credentials.watch(period_s=0.001)
    credentials.watch(period_s=0.001)
    Path(config.token_file).write_text(f"drafter {TOKEN}-new\n")
    assert changed.wait(10)
    assert credentials.own_token == f"{TOKEN}-new"
    credentials.close()
    credentials._thread.join(10)
    assert not credentials._thread.is_alive()


def test_no_secret_is_in_a_repr(config):
    credentials = Credentials(config)
    shown = repr(credentials) + repr(credentials._held) + repr(vars(credentials))
    assert TOKEN not in shown
    assert "PRIVATE" not in shown


def test_an_authority_of_others_makes_a_client(tmp_path):
    (tmp_path / "ca").write_bytes(Authority().pem)
    config = SecurityConfig(tls_ca=str(tmp_path / "ca"))
    assert Credentials(config).channel_credentials() is not None
