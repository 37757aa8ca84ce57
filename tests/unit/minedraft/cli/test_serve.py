from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace

import pytest

from minedraft.cli import config_options
from minedraft.cli import serve as serve_module
from minedraft.cli.child import ChildError
from minedraft.cli.cluster import (
    Cluster,
    ClusterSpec,
    coordinator_settings,
    drafter_settings,
    gateway_settings,
    verifier_settings,
)
from minedraft.cli.roles import config_class
from minedraft.cli.serve import build_mode, called_as, check_http, curl_line, find_models
from minedraft.errors import ConfigError
from minedraft.plans import MAX_ROWS
from minedraft.security.config import SecurityConfig
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


def test_a_gateway_that_cannot_be_is_refused_before_models_are_loaded(monkeypatch, held_port):
    plain = SecurityConfig()
    check_http("127.0.0.1:0", plain)
    for http in ("8000", "0.0.0.0:8000", f"127.0.0.1:{held_port}"):
        with pytest.raises(ConfigError, match="http="):
            check_http(http, plain)
    monkeypatch.setattr(serve_module.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"minedraft\[gateway\]"):
        check_http("127.0.0.1:0", plain)


def test_the_line_to_try_has_what_the_port_asks_for():
    line = curl_line("127.0.0.1:8000", SecurityConfig())
    assert line.startswith("curl http://127.0.0.1:8000/v1/completions -H")
    secured = SecurityConfig(tls_cert="c", tls_key="k", tls_ca="a b", token_file="t")
    line = curl_line("127.0.0.1:8000", secured)
    assert "curl https://" in line
    assert "--cacert 'a b'" in line
    assert "Authorization: Bearer" in line


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
    result = minedraft(command, "--target", "/nowhere", "--batch", str(MAX_ROWS + 1))
    assert result.exit_code == 2
    assert "--batch" in result.stderr
    assert "less than or equal to 1024" in result.stderr


@pytest.mark.parametrize("batch", [1, 33, 600, MAX_ROWS])
def test_every_batch_that_is_taken_makes_a_coordinators_settings(batch):
    spec = ClusterSpec("t", "d", build_mode("psd", batch, 4))
    config = built("coordinator", coordinator_settings(spec, "v:1", ("d:1", "d:2")))
    assert (config.max_batch_size, config.drafters) == (batch, ("d:1", "d:2"))


def test_models_are_directories_checked_first(tmp_path):
    found = find_models(str(tmp_path), str(tmp_path), "")
    assert found == (str(tmp_path), str(tmp_path))
    for arguments, message in (
        (("", "", ""), "target=''"),
        (("/no/dir", "", ""), "target='/no/dir': no such directory.*minedraft fetch smollm2"),
        ((str(tmp_path), "/no/dir", ""), "draft='/no/dir'"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_models(*arguments)


@pytest.mark.parametrize(
    ("option", "value", "want"),
    [("dtype", "float16", "auto, float32, bfloat16"), ("kernels", "cuda", "auto, c, torch")],
)
def test_arithmetic_that_does_not_exist_is_refused_before_models_are_fetched(
    minedraft, option, value, want
):
    result = minedraft("serve", "--pair", "smollm2", f"--{option}", value)
    assert result.exit_code == 1
    assert f"{option}={value!r}: want one of {want}" in result.stderr


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
@pytest.mark.parametrize("kernels", ["auto", "c", "torch"])
def test_dtype_and_kernels_reach_both_workers(dtype, kernels):
    spec = ClusterSpec("t", "d", build_mode("psd", 8, 4), dtype=dtype, kernels=kernels)
    for role, settings in (
        ("verifier", verifier_settings(spec)),
        ("drafter", drafter_settings(spec)),
    ):
        config = built(role, settings)
        assert (config.dtype, config.kernels) == (dtype, kernels)


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


def test_the_target_alone_gets_the_cores_of_both_workers_and_all_their_requests(monkeypatch):
    monkeypatch.setattr("minedraft.cli.cluster.os.sched_getaffinity", lambda _pid: {2, 5, 7, 9})
    mode = build_mode("psd", 3, 4)
    for given, cores, threads in (
        (ClusterSpec("t", "d", mode), "2,5", 2),
        (ClusterSpec("t", "d", mode, threads=2), "2,5,7,9", 4),
        (ClusterSpec("t", "d", mode, tp_size=3), "2,5,7,9", 4),
        (ClusterSpec("t", "d", mode, threads=3), "", 4),  # not enough for both: anywhere
        (ClusterSpec("t", "d", mode, verifier_cpus="9", drafter_cpus="7"), "9,7", 2),
    ):
        alone = given.on_all_cores()
        assert (alone.verifier_cpus, alone.threads, alone.tp_size) == (cores, threads, 1)
        assert (alone.draft, alone.mode) == ("", build_mode("ar", 6, 4))


@pytest.mark.parametrize("has_cache", [True, False])
def test_the_prefix_cache_is_switched_at_both_who_have_one(has_cache):
    spec = ClusterSpec("t", "d", prefix_cache=has_cache)
    assert built("drafter", drafter_settings(spec)).prefix_cache == has_cache
    settings = coordinator_settings(spec, "v:1", ("d:1",))
    assert built("coordinator", settings).prefix_cache == has_cache


@pytest.mark.parametrize(("kind", "takes"), [("model", False), ("synthetic", True)])
def test_the_coordinator_of_a_test_drafter_takes_debug_requests(kind, takes):
    spec = ClusterSpec("t", "d", drafter_kind=kind)
    config = built("coordinator", coordinator_settings(spec, "v:1", ("d:1",)))
    assert config.debug_requests == takes


def built(role, settings):
    return config_options.build(config_class(role), settings)


def test_what_a_spec_says_reaches_every_process_it_concerns():
    security = SecurityConfig(tls_ca="ca", tls_cert="cert", tls_key="key", token_file="tokens")
    spec = ClusterSpec(
        "target", "draft", Mode(1, 5, 2), "127.0.0.1:7", "bfloat16", "torch", "synthetic", 99,
        link="grpc", acceptance="rejection", verifier_cpus="0-1", drafter_cpus="2", threads=3,
        security=security,
    )  # fmt: skip
    verifier = built("verifier", verifier_settings(spec))
    drafter = built("drafter", drafter_settings(spec))
    coordinator = built("coordinator", coordinator_settings(spec, "v:1", ()))
    for worker in (verifier, drafter):
        assert (worker.dtype, worker.kernels) == ("bfloat16", "torch")
        assert (worker.num_blocks, worker.threads) == (99, 3)
    assert (verifier.model, verifier.cpus, verifier.acceptance) == ("target", "0-1", "rejection")
    assert (drafter.model, drafter.cpus, drafter.kind) == ("draft", "2", "synthetic")
    assert (coordinator.tokenizer, coordinator.listen) == ("target", "127.0.0.1:7")
    assert (coordinator.link, coordinator.num_draft_tokens) == ("grpc", 2)
    gateway = built("gateway", gateway_settings(replace(spec, http="127.0.0.1:8"), "127.0.0.1:7"))
    assert (gateway.listen, gateway.coordinator) == ("127.0.0.1:8", "127.0.0.1:7")
    assert {config.security for config in (verifier, drafter, coordinator, gateway)} == {security}


@pytest.mark.parametrize(
    ("changes", "spare"),
    [
        ({}, "2,3"),
        ({"mode": Mode(2, 8, 4)}, ""),  # a fixed shape
        ({"draft": ""}, ""),
        ({"drafter_cpus": "1-2"}, ""),  # both have core 1
        ({"tp_size": 2, "verifier_cpus": "0-1"}, ""),
    ],
)
def test_the_drafters_cores_are_lent_where_the_coordinator_chooses_shapes(changes, spare):
    spec = ClusterSpec(
        "t", "d", Mode(2, 8, 4, "auto"), verifier_cpus="0,1", drafter_cpus="2-3", threads=2
    )
    config = built("verifier", verifier_settings(replace(spec, **changes)))
    assert config.spare_cpus == spare


@pytest.mark.parametrize(
    ("role", "settings"),
    [
        ("verifier", verifier_settings),
        ("drafter", drafter_settings),
        ("coordinator", lambda spec: coordinator_settings(spec, "v:1", ("d:1",))),
        ("gateway", lambda spec: gateway_settings(spec, "c:1")),
    ],
)
def test_every_setting_a_process_is_given_is_one_of_its_options(role, settings):
    known = {parameter.name for parameter in config_options.parameters(config_class(role))}
    assert settings(ClusterSpec("t", "d", link="grpc")).keys() <= known


@pytest.mark.parametrize(
    ("setting", "said"),
    [({"acceptance": "luck"}, "acceptance='luck'"), ({"link": "pigeon"}, "link='pigeon'")],
)
async def test_a_setting_that_no_service_takes_is_named_before_anything_is_started(
    tmp_path, setting, said
):
    spec = ClusterSpec("t", "d", listen="127.0.0.1:0", log_dir=str(tmp_path), **setting)
    with pytest.raises(ConfigError, match=said):
        async with Cluster(spec):
            pass
    assert not list(tmp_path.iterdir())


def test_serve_says_it_and_goes_on(minedraft, monkeypatch, tmp_path):
    monkeypatch.setattr("minedraft.cli.serve.remark_here", lambda dtype: f"slow: {dtype}")
    result = minedraft("serve", "--target", str(tmp_path), "--listen=[::1]:0")
    assert "slow: auto" in result.stderr
    assert "needs a drafter" in result.stderr


async def test_the_death_of_a_service_is_told_though_trials_are_under_way(monkeypatch):
    class Dying:
        """A cluster of which one process dies while another one is measured."""

        address, http_address, log_dir = "127.0.0.1:7", "", "logs"
        is_measuring = asyncio.Event()

        def __init__(self, _spec):
            pass

        async def __aenter__(self):
            return self

        async def __aexit__(self, *exc):
            pass

        async def measured(self, _on_progress):
            self.is_measuring.set()
            await asyncio.Event().wait()

        async def watch(self):
            await self.is_measuring.wait()
            raise ChildError("the drafter was killed by signal 9")

    monkeypatch.setattr(serve_module, "started", Dying)
    monkeypatch.setattr(serve_module, "called_as", lambda _program: "minedraft")
    with pytest.raises(ChildError, match="the drafter was killed"):
        await serve_module._serve(ClusterSpec("t", "d"))
