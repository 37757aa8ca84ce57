from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from minedraft.cli import config_options
from minedraft.cli.roles import config_class, serve
from minedraft.errors import ConfigError


async def test_a_role_tells_its_parent_where_it_serves_and_stops_with_it():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:

        async def run(config, *, ready, stop):
            ready(f"{config}:9")
            await stop.wait()

        task = asyncio.ensure_future(serve(run, "host", theirs.detach()))
        async with asyncio.timeout(5):
            assert await asyncio.get_running_loop().sock_recv(ours, 64) == b"host:9\n"
            ours.shutdown(socket.SHUT_RDWR)
            await task


async def test_a_signal_stops_a_role():
    async def run(config, *, ready, stop):
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    async with asyncio.timeout(5):
        await serve(run, None)


async def test_what_a_role_raises_comes_out():
    async def run(config, *, ready, stop):
        raise ConfigError("listen='h:1': cannot bind")

    with pytest.raises(ConfigError, match="cannot bind"):
        await serve(run, None)


@pytest.mark.parametrize("role", ["coordinator", "drafter", "verifier"])
def test_a_bad_setting_is_one_line(minedraft, role):
    required = [] if role == "coordinator" else ["--model", "m"]
    result = minedraft(role, *required, "--log-level", "loud")
    assert result.exit_code == 1
    assert "log_level='loud'" in result.stderr


def test_a_setting_can_come_from_the_environment(minedraft, monkeypatch):
    monkeypatch.setenv("MINEDRAFT_COORDINATOR_NUM_BATCHES", "99")
    result = minedraft("coordinator")
    assert result.exit_code == 1
    assert "num_batches=99" in result.stderr


@pytest.mark.parametrize("role", ["coordinator", "drafter", "verifier"])
@pytest.mark.parametrize("option", ["--listen", "--health-listen"])
def test_a_port_in_use_is_named_before_anything_is_loaded(minedraft, role, option):
    model = ["--tokenizer" if role == "coordinator" else "--model", "/nowhere"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = minedraft(role, *model, "--listen", "127.0.0.1:0", option, f"127.0.0.1:{port}")
    assert result.exit_code == 1
    assert f"port {port} cannot be used: Address already in use; choose another with {option}" in (
        result.stderr
    )


@pytest.mark.parametrize(
    ("role", "told", "variables", "said"),
    [
        ("coordinator", {"num_batches": 99}, {}, "num_batches=99"),
        ("coordinator", {"drafters": "localhost"}, {}, "drafters='localhost'"),
        ("verifier", {"model": "m", "tp_size": 0}, {}, "tp_size=0"),
        ("drafter", {"model": "m", "kind": "odd"}, {}, "kind='odd'"),
        ("verifier", {"model": "m", "tls_cert": "/c"}, {}, "tls_cert='/c' and tls_key=''"),
        # What nobody told it may still come from a variable.
        ("verifier", {"model": "m"}, {"MINEDRAFT_VERIFIER_TP_SIZE": "0"}, "tp_size=0"),
        ("verifier", {"modle": "m"}, {}, "settings: modle: no such option"),
        ("verifier", ["model"], {}, "settings: want one JSON object"),
        ("verifier", "x" * 2**20, {}, "settings: want one JSON object"),
    ],
)
def test_settings_come_from_a_parent_as_one_value(
    minedraft, monkeypatch, role, told, variables, said
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = minedraft(role, "--settings=-", stdin=json.dumps(told))
    assert result.exit_code == 1
    assert said in result.stderr


def test_the_variables_of_an_option_are_found():
    found = set(config_options.variables("verifier", config_class("verifier"), {"model", "tls_ca"}))
    assert found == {"MINEDRAFT_VERIFIER_MODEL", "MINEDRAFT_VERIFIER_TLS_CA", "MINEDRAFT_TLS_CA"}


_IMPORTING = """
import sys
from minedraft.cli.main import app

class Torch:
    def find_spec(self, name, path, target=None):
        if name == "minedraft.services.drafter.app":
            print("importing", flush=True)
            sys.stdin.read()

sys.meta_path.insert(0, Torch())
app(["drafter", "--model", "/nowhere", "--listen", "127.0.0.1:0"])
"""


def test_a_signal_while_the_role_is_imported_is_a_quiet_end():
    with subprocess.Popen(
        [sys.executable, "-c", _IMPORTING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout.readline() == b"importing\n"
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_secret_that_everybody_can_read_is_said_at_the_start(tmp_path, mode):
    tokens = tmp_path / "tokens"
    tokens.write_text("client a-token-of-enough-characters\n")
    tokens.chmod(mode)
    ended = subprocess.run(
        [sys.executable, "-m", "minedraft.services.coordinator", "--listen=127.0.0.1:0",
         f"--token-file={tokens}", "--tokenizer=/nowhere"],
        capture_output=True, text=True, timeout=15, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    warned = [line for line in ended.stderr.splitlines() if "credentials.exposed" in line]
    assert len(warned) == (mode == 0o644)
    assert all(f"chmod o-rwx {tokens}" in line for line in warned)


def test_a_caller_is_warned_of_a_secret_that_everybody_can_read(minedraft, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("client a-token-of-enough-characters\n")
    tokens.chmod(0o644)
    result = minedraft("status", "--token-file", str(tokens))
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: token_file='{tokens}': mode 0644, everybody")
    tokens.chmod(0o600)
    assert minedraft("status", "--token-file", str(tokens)).stderr == ""
