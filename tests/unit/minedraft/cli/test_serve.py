from __future__ import annotations

import socket
import sys

import pytest

from minedraft.cli.cluster import (
    MAX_BATCH,
    ClusterSpec,
    coordinator_arguments,
    drafter_arguments,
    verifier_arguments,
)
from minedraft.cli.serve import build_mode, called_as, find_models
from minedraft.errors import ConfigError
from minedraft.services.coordinator.config import MAX_ROWS, CoordinatorConfig
from minedraft.types import Mode


@pytest.fixture
def held_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


def test_a_port_in_use_is_named_before_anything_is_loaded(minedraft, held_port):
    result = minedraft("serve", "--target", "/nowhere", "--listen", f"127.0.0.1:{held_port}")
    assert result.exit_code == 1
    assert f"port {held_port} cannot be used: Address already in use" in result.stderr


@pytest.mark.parametrize("listen", ["50052", "localhost:99999"])
def test_what_is_no_address_is_refused_before_anything_else(minedraft, listen):
    result = minedraft("serve", "--target", "/nowhere", "--listen", listen)
    assert result.exit_code == 1
    assert f"listen='{listen}': want host:port" in result.stderr


def test_the_command_to_type_is_the_one_that_was_called(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "minedraft"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert called_as(str(program)) == str(program)
    monkeypatch.setenv("PATH", str(program.parent))
    assert called_as(str(program)) == "minedraft"
    assert called_as("/of another/minedraft") == "'/of another/minedraft'"
    module = str(tmp_path / "minedraft" / "cli" / "main.py")
    assert called_as(module) == f"{sys.executable} -m minedraft.cli.main"


def test_modes_are_numbers():
    assert build_mode("psd", 4, 3) == Mode(2, 4, 3)
    assert build_mode("sd", 4, 3) == Mode(1, 4, 3)
    assert build_mode("ar", 4, 3) == Mode(1, 4, 0)
    with pytest.raises(ConfigError, match="mode='pearl'"):
        build_mode("pearl", 4, 3)
    with pytest.raises(ConfigError, match="k=0"):
        build_mode("psd", 4, 0)


@pytest.mark.parametrize("command", ["serve", "bench"])
def test_a_batch_that_no_coordinator_takes_is_named_before_anything_is_started(minedraft, command):
    result = minedraft(command, "--target", "/nowhere", "--batch", str(MAX_BATCH + 1))
    assert result.exit_code == 2
    assert "--batch" in result.stderr
    assert "less than or equal to 1024" in result.stderr


@pytest.mark.parametrize("batch", [1, 33, 600, MAX_BATCH])
def test_every_batch_that_is_taken_makes_a_coordinators_settings(batch):
    spec = ClusterSpec("t", "d", build_mode("psd", batch, 4))
    arguments = coordinator_arguments(spec, "v:1", ("d:1",))
    numbers = {
        name.removeprefix("--").replace("-", "_"): int(value)
        for name, _, value in (argument.partition("=") for argument in arguments)
        if value.isdigit()
    }
    assert CoordinatorConfig(**numbers).max_batch_size == batch
    assert MAX_BATCH == MAX_ROWS


def test_models_are_directories_checked_first(tmp_path):
    found = find_models(str(tmp_path), str(tmp_path), "", "bfloat16")
    assert found == (str(tmp_path), str(tmp_path), "bfloat16")
    for arguments, message in (
        (("", "", "", "float32"), "target=''"),
        (
            ("/no/dir", "", "", "float32"),
            "target='/no/dir': no such directory.*minedraft fetch smollm2",
        ),
        ((str(tmp_path), "/no/dir", "", "float32"), "draft='/no/dir'"),
        ((str(tmp_path), "", "", "float16"), "dtype='float16'"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_models(*arguments)


def test_speculation_without_a_drafter_is_refused(minedraft, tmp_path):
    result = minedraft("serve", "--target", str(tmp_path), "--listen", "127.0.0.1:0")
    assert result.exit_code == 1
    assert "mode psd needs a drafter" in result.stderr


def test_workers_get_cores_of_their_own(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {2, 5, 7, 9})
    assert ClusterSpec("t", "d").worker_cpus() == ("2", "5")
    assert ClusterSpec("t", "d", threads=2).worker_cpus() == ("2,5", "7,9")
    assert ClusterSpec("t", "d", tp_size=3).worker_cpus() == ("2,5,7", "9")
    assert ClusterSpec("t", "d", tp_size=4).worker_cpus() == ("", "")
    assert ClusterSpec("t", "d", verifier_cpus="0-3").worker_cpus() == ("0-3", "5")
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0})
    assert ClusterSpec("t", "d").worker_cpus() == ("", "")


@pytest.mark.parametrize(("kind", "takes"), [("model", False), ("synthetic", True)])
def test_the_coordinator_of_a_test_drafter_takes_debug_requests(kind, takes):
    arguments = coordinator_arguments(ClusterSpec("t", "d", drafter_kind=kind), "v:1", ("d:1",))
    assert ("--debug-requests" in arguments) == takes


def test_every_option_a_process_is_given_exists():
    import inspect

    from minedraft.cli.roles import command

    spec = ClusterSpec("t", "d", link="grpc", drafter_kind="synthetic")
    for role, arguments in (
        ("verifier", verifier_arguments(spec)),
        ("drafter", drafter_arguments(spec)),
        ("coordinator", coordinator_arguments(spec, "v:1", ("d:1",))),
    ):
        known = set(inspect.signature(command(role)).parameters)
        given = {a.partition("=")[0].removeprefix("--").replace("-", "_") for a in arguments}
        assert given <= known, role
