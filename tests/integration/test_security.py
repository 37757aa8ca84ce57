"""The threat model's rows, through real services: who gets in, and what it costs the others."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from minedraft.cli.main import app
from minedraft.client import Client
from minedraft.client.options import build_request
from minedraft.errors import (
    AuthenticationError,
    ConfigError,
    PermissionDeniedError,
    WorkerUnavailableError,
)
from minedraft.security.config import SecurityConfig
from minedraft.security.credentials import Credentials
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.config import VerifierConfig
from minedraft.transport import public_codec
from minedraft.transport.channel import open_channel
from minedraft.transport.health import HealthServer
from minedraft.transport.server import serve
from minedraft.transport.worker_client import DrafterConnection, VerifierConnection
from minedraft.v1 import generation_pb2_grpc
from tests.certificates import Authority
from tests.integration.cluster import cluster, until_status
from tests.integration.secured import secured_cluster

PROMPT = list(range(5, 20))
OPTIONS = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
ROLES = ("client", "monitor", "admin", "coordinator", "drafter", "verifier")
SECRET = "{}-secret-0123456789abcdef"


@pytest.fixture
def certificates(tmp_path):
    authority = Authority()
    return authority, {role: authority.write(tmp_path / role, role) for role in ROLES}


# -- who may listen ---------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["coordinator", "drafter", "verifier"])
def test_a_service_beyond_loopback_without_credentials_does_not_start(role):
    arguments = [role, "--listen=0.0.0.0:0", *([] if role == "coordinator" else ["--model=m"])]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    assert "listen='0.0.0.0:0'" in refused.stderr
    assert "--insecure" in refused.stderr


@pytest.mark.parametrize("config", [VerifierConfig, DrafterConfig])
def test_a_gloo_link_beyond_loopback_needs_a_control_plane_that_asks(config):
    with pytest.raises(ConfigError, match=r"link_bind_host='10.0.0.7'"):
        config(model="m", link_bind_host="10.0.0.7")
    config(model="m", link_bind_host="10.0.0.7", security=SecurityConfig(insecure=True))


def test_insecure_is_said_not_guessed():
    loud = SecurityConfig(insecure=True)
    assert CoordinatorConfig(listen="0.0.0.0:50050", security=loud).security.insecure
    with pytest.raises(ConfigError, match="tls_cert"):
        CoordinatorConfig(listen="0.0.0.0:50050")


async def test_the_server_itself_refuses_too():
    with pytest.raises(ConfigError, match="insecure"):
        await serve("0.0.0.0:0", lambda _server: (), max_message_bytes=1024, stop=asyncio.Event())


def test_a_certificate_that_cannot_be_used_is_named_before_anything_is_loaded(tmp_path):
    missing = str(tmp_path / "none")
    refused = CliRunner().invoke(
        app, ["verifier", "--model=m", f"--tls-cert={missing}", f"--tls-key={missing}"]
    )
    assert refused.exit_code == 1
    assert f"tls_cert='{missing}'" in refused.stderr


def test_the_paths_come_from_variables_too_the_roles_own_or_everybodys(tmp_path):
    for name in ("MINEDRAFT_TLS_CERT", "MINEDRAFT_VERIFIER_TLS_CERT"):
        refused = CliRunner().invoke(app, ["verifier", "--model=m"], env={name: "/x"})
        assert "tls_cert='/x' and tls_key=''" in refused.stderr


async def test_health_answers_probes_and_nothing_else():
    health = HealthServer("127.0.0.1:0", ("minedraft.v1.Generation",))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{health.port}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        assert (await check(health_pb2.HealthCheckRequest())).status
        for method in (
            "/minedraft.v1.Generation/Generate",
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await channel.unary_unary(method)(b"", timeout=5)
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            await check(health_pb2.HealthCheckRequest(service="x" * 10_000), timeout=5)
    health.stop()


# -- who may call -----------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("link", ["grpc", "gloo"])
async def test_three_services_under_mutual_tls_give_the_same_output(
    certificates, target_dir, plain_greedy, link
):
    _, security = certificates
    async with secured_cluster(target_dir, security, link=link) as c:
        got = await c.admin.generate(PROMPT, **OPTIONS)
        assert got.token_ids == plain_greedy(PROMPT, 12)
        status = await c.admin.status()
        assert status.counters.num_accepted_tokens > 0  # the link carries drafts

        async with await Client.connect(c.coordinator, security=security["client"]) as client:
            assert (await client.generate(PROMPT, **OPTIONS)).token_ids == got.token_ids
            for forbidden in (client.status(), client.timeline()):
                with pytest.raises(PermissionDeniedError, match="admin"):
                    await forbidden
            with pytest.raises(PermissionDeniedError, match="SetMode"):
                await client.set_mode(num_batches=1, max_batch_size=1, num_draft_tokens=0)
        async with await Client.connect(c.coordinator, security=security["monitor"]) as monitor:
            assert (await monitor.status()).counters.num_finished == {"length": 2}
            assert await monitor.timeline()
            assert (await monitor.model_info()).model.vocab_size
            for forbidden in (
                monitor.generate(PROMPT, **OPTIONS),
                monitor.abort("r"),
                monitor.set_mode(num_batches=1, max_batch_size=1, num_draft_tokens=0),
                monitor.swap_drafter(model="m"),
            ):
                with pytest.raises(PermissionDeniedError, match="the caller is monitor"):
                    await forbidden
        for role in ("drafter", "verifier"):
            with pytest.raises(PermissionDeniedError, match=f"the caller is {role}"):
                await Client.connect(c.coordinator, security=security[role])
        for nobody in (None, SecurityConfig(tls_ca=security["client"].tls_ca)):
            with pytest.raises(WorkerUnavailableError):
                await Client.connect(c.coordinator, timeout_s=0.5, security=nobody)

        for role in ("drafter", "client", "admin"):
            mine = await asyncio.to_thread(Credentials, security[role])
            for connection in (
                VerifierConnection(c.verifier, mine),
                DrafterConnection(c.drafter, mine),
            ):
                with pytest.raises(PermissionDeniedError, match="for coordinator"):
                    await connection.get_info(5)
                await connection.close()
        assert (await c.admin.generate(PROMPT, **OPTIONS)).token_ids == got.token_ids


@pytest.mark.timeout(60)
@pytest.mark.parametrize("tls", [True, False])
async def test_three_services_with_tokens_give_the_same_output(
    target_dir, plain_greedy, tmp_path, tls
):
    def accepted(*roles: str) -> list[str]:
        hashes = {r: hashlib.sha256(SECRET.format(r).encode()).hexdigest() for r in roles}
        return [f"{role} sha256:{digest}" for role, digest in hashes.items()]

    lines = {
        "coordinator": [
            *accepted("client", "admin"),
            f"coordinator {SECRET.format('coordinator')}",
        ],
        "drafter": [*accepted("coordinator"), f"drafter {SECRET.format('drafter')}"],
        "verifier": accepted("coordinator", "drafter"),
        "admin": [f"admin {SECRET.format('admin')}"],
        "client": [f"client {SECRET.format('client')}"],
    }
    authority = Authority()
    security = {}
    for role, content in lines.items():
        written = authority.write(tmp_path / role) if tls else SecurityConfig()
        (tmp_path / role).mkdir(exist_ok=True)
        file = tmp_path / role / "tokens"
        file.write_text("\n".join(content))
        if tls and role in {"admin", "client"}:
            written = SecurityConfig(tls_ca=written.tls_ca)
        security[role] = dataclasses.replace(written, token_file=str(file))
    async with secured_cluster(target_dir, security, link="grpc") as c:
        got = await c.admin.generate(PROMPT, **OPTIONS)
        assert got.token_ids == plain_greedy(PROMPT, 12)
        async with await Client.connect(c.coordinator, security=security["client"]) as client:
            assert (await client.generate(PROMPT, **OPTIONS)).token_ids == got.token_ids
            with pytest.raises(PermissionDeniedError):
                await client.status()
        nobody = SecurityConfig(tls_ca=security["client"].tls_ca)
        with pytest.raises(AuthenticationError, match="token"):
            await Client.connect(c.coordinator, security=nobody)


@pytest.mark.timeout(60)
async def test_certificates_inside_and_tokens_for_people(certificates, target_dir, tmp_path):
    """The usual deployment: services know each other by certificate, people have tokens."""
    authority, security = certificates
    file = tmp_path / "tokens"
    file.write_text(f"client {SECRET.format('client')}\nadmin {SECRET.format('admin')}\n")
    security["coordinator"] = dataclasses.replace(security["coordinator"], token_file=str(file))
    (tmp_path / "ca").write_bytes(authority.pem)
    security["admin"] = SecurityConfig(tls_ca=str(tmp_path / "ca"), token_file=str(file))
    async with secured_cluster(target_dir, security, link="grpc") as c:
        assert len((await c.admin.generate(PROMPT, **OPTIONS)).token_ids) == 12
        command = ["status", "--json", "--address", c.coordinator, "--token-file", str(file)]
        env = {"MINEDRAFT_TLS_CA": str(tmp_path / "ca")}
        shown = await asyncio.to_thread(CliRunner().invoke, app, command, env=env)
        assert json.loads(shown.stdout)["num_running"] == 0


@pytest.mark.timeout(60)
async def test_all_certificates_are_replaced_while_serving(
    certificates, target_dir, plain_greedy, tmp_path
):
    authority, security = certificates
    async with secured_cluster(target_dir, security, link="grpc") as c:
        stream = aiter(c.admin.stream(PROMPT, temperature=0, max_tokens=200, ignore_eos=True))
        tokens = list((await anext(stream)).token_ids)
        for role in ROLES:
            authority.write(tmp_path / role, role)
        async with await Client.connect(c.coordinator, security=security["client"]) as client:
            got = await client.generate(PROMPT, **OPTIONS)
            assert got.token_ids == plain_greedy(PROMPT, 12)
        async for delta in stream:
            tokens += delta.token_ids
        assert tuple(tokens) == plain_greedy(PROMPT, 200)


# -- what it costs ----------------------------------------------------------------------------


@pytest.mark.timeout(60)
async def test_a_client_that_never_reads_costs_the_others_nothing(target_dir, plain_greedy):
    async with cluster(target_dir, target_dir, kind="oracle", mode=(2, 2, 3)) as c:
        channel = open_channel(c.client.address)
        big = {"max_tokens": 400, "ignore_eos": True, "logprobs": 20, "n": 2, "temperature": 1.0}
        message = public_codec.request_to_proto(build_request(PROMPT, None, big))
        call = generation_pb2_grpc.GenerationStub(channel).Generate(message)
        await call.read()  # started; nothing is read from here on
        for _ in range(3):
            got = await c.client.generate(PROMPT, **OPTIONS)
            assert got.token_ids == plain_greedy(PROMPT, 12)
        # It runs to its end although nobody reads, and then holds no slot and no block.
        idle = await until_status(c.client, lambda s: s.num_running + s.num_blocks_used == 0)
        assert idle.counters.num_finished["length"] == 3 + 2
        call.cancel()
        await channel.close()
