"""minedraft/security/exposure.py."""

from __future__ import annotations

import hashlib

import pytest

from minedraft.security.config import SecurityConfig
from minedraft.security.exposure import exposed

TOKEN = "a-token-of-enough-characters"
LINES = {
    "clear": f"client {TOKEN}\n",
    "hashed": f"client sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n",
    "mixed": f"client {TOKEN}\nadmin sha256:{'0' * 64}\n",
    "broken": "no line\n",
}


def settings_exposed(config):
    return [found.setting for found in exposed(config)]


@pytest.mark.parametrize(("mode", "is_exposed"), [(0o600, False), (0o640, False), (0o644, True)])
@pytest.mark.parametrize("setting", ["tls_key", "token_file"])
def test_what_everybody_can_read_is_found(tmp_path, setting, mode, is_exposed):
    file = tmp_path / "secret"
    file.write_text(LINES["clear"])
    file.chmod(mode)
    both = {"tls_cert": str(file)} if setting == "tls_key" else {}
    config = SecurityConfig(**{setting: str(file)}, **both)
    assert settings_exposed(config) == ([setting] if is_exposed else [])


@pytest.mark.parametrize("lines", LINES)
def test_a_file_of_hashes_is_no_secret(tmp_path, lines):
    file = tmp_path / "tokens"
    file.write_text(LINES[lines])
    file.chmod(0o644)
    config = SecurityConfig(token_file=str(file))
    assert settings_exposed(config) == ([] if lines == "hashed" else ["token_file"])


def test_the_warning_names_file_mode_and_remedy(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(LINES["clear"])
    file.chmod(0o666)
    (found,) = exposed(SecurityConfig(token_file=str(file)))
    for part in (f"token_file='{file}'", "mode 0666", f"chmod o-rwx {file}"):
        assert part in str(found)
    assert TOKEN not in str(found)


def test_nothing_to_read_is_nothing_exposed(tmp_path):
    assert settings_exposed(SecurityConfig()) == []
    assert settings_exposed(SecurityConfig(token_file=str(tmp_path / "none"))) == []
