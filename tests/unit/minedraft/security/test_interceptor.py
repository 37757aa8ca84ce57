from __future__ import annotations

import dataclasses

import grpc
import pytest
import structlog

from minedraft.errors import AuthenticationError, PermissionDeniedError, WorkerUnavailableError
from minedraft.security.channel import open_aio_channel
from minedraft.security.config import SecurityConfig
from minedraft.security.roles import POLICY, Role
from minedraft.transport.status import from_rpc_error
from tests.certificates import Authority
from tests.role_table import MAY_CALL
from tests.unit.minedraft.security.conftest import METHODS, echo_server, load

ALLOWED = {**MAY_CALL, "nobody": set()}
SECRET = "{}-token-0123456789abcdef"


async def call(address, method, credentials=None, metadata=None):
    """Call it; returns the answer or raises our error."""
    channel = open_aio_channel(address, [], credentials)
    try:
        if method == METHODS["generate"]:
            stream = channel.unary_stream(method)(b"hello", timeout=10, metadata=metadata)
            return [answer async for answer in stream].pop()
        return await channel.unary_unary(method)(b"hello", timeout=10, metadata=metadata)
    except grpc.aio.AioRpcError as err:
        raise from_rpc_error(err) from None
    finally:
        await channel.close()


async def check_all(address, credentials, role):
    for method in (*POLICY, METHODS["stray"]):
        if method in ALLOWED[role]:
            assert await call(address, method, credentials) == b"hello"
        else:
            with pytest.raises(PermissionDeniedError, match=method):
                await call(address, method, credentials)


@pytest.mark.parametrize("role", ALLOWED)
async def test_a_certificate_opens_what_its_role_may_call_and_nothing_else(
    authority, tmp_path, role
):
    server = authority.write(tmp_path / "server", "verifier")
    caller = authority.write(tmp_path / "caller", role)
    async with echo_server(server) as (address, _):
        await check_all(address, await load(caller), role)


@pytest.mark.parametrize("role", [role.value for role in Role])
@pytest.mark.parametrize("tls", [True, False])
async def test_a_token_opens_what_its_role_may_call_and_nothing_else(
    authority, tmp_path, role, tls
):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{r.value} {SECRET.format(r.value)}\n" for r in Role))
    mine = tmp_path / "mine"
    mine.write_text(f"{role} {SECRET.format(role)}\n")
    server, caller = SecurityConfig(token_file=str(tokens)), SecurityConfig(token_file=str(mine))
    if tls:
        written = authority.write(tmp_path)
        server = dataclasses.replace(written, token_file=str(tokens))
        caller = dataclasses.replace(caller, tls_ca=written.tls_ca)
    async with echo_server(server) as (address, _):
        await check_all(address, await load(caller, Role(role)), role)


@pytest.mark.parametrize("sent", [None, "Bearer wrong-token-0123456789", "", "Basic eDp5"])
@pytest.mark.parametrize("name", ["status", "generate", "stray"])
async def test_without_a_good_token_nothing_is_open(tmp_path, sent, name):
    (tmp_path / "tokens").write_text(f"admin {SECRET.format('admin')}\n")
    metadata = None if sent is None else [("authorization", sent)]
    async with echo_server(SecurityConfig(token_file=str(tmp_path / "tokens"))) as (address, _):
        with structlog.testing.capture_logs() as lines, pytest.raises(AuthenticationError):
            await call(address, METHODS[name], metadata=metadata)
    assert [line["event"] for line in lines] == ["auth.refused"]
    assert "wrong-token" not in str(lines)


async def test_without_a_certificate_there_is_no_connection(authority, tmp_path):
    server = authority.write(tmp_path, "verifier")
    stranger = dataclasses.replace(
        Authority().write(tmp_path / "stranger", "admin"), tls_ca=server.tls_ca
    )

    async with echo_server(server) as (address, _):
        for caller in (
            None,
            await load(SecurityConfig(tls_ca=server.tls_ca)),
            await load(stranger),
        ):
            with pytest.raises(WorkerUnavailableError):
                await call(address, METHODS["status"], caller)


async def test_a_client_does_not_talk_to_a_server_of_another_authority(authority, tmp_path):
    impostor = Authority().write(tmp_path / "impostor", "verifier")
    async with echo_server(impostor) as (address, _):
        caller = await load(authority.write(tmp_path / "caller", "admin"))
        with pytest.raises(WorkerUnavailableError):
            await call(address, METHODS["status"], caller)


async def test_where_tokens_are_asked_for_a_certificate_opens_nothing(authority, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {SECRET.format('client')}\n")
    server = dataclasses.replace(authority.write(tmp_path, "coordinator"), token_file=str(tokens))
    admin = authority.write(tmp_path / "admin", "admin")
    with_token = dataclasses.replace(admin, token_file=str(tokens))
    async with echo_server(server) as (address, _):
        caller = await load(with_token, Role.CLIENT)
        assert await call(address, METHODS["generate"], caller)
        with pytest.raises(PermissionDeniedError):
            await call(address, METHODS["status"], caller)
        with pytest.raises(AuthenticationError):
            await call(address, METHODS["generate"], await load(admin))


async def test_two_tokens_are_no_token(tmp_path):
    (tmp_path / "tokens").write_text(f"admin {SECRET.format('admin')}\n")
    config = SecurityConfig(token_file=str(tmp_path / "tokens"))
    guess = [("authorization", "Bearer not-a-known-token-01234")]
    async with echo_server(config) as (address, _):
        caller = await load(config, Role.ADMIN)
        assert await call(address, METHODS["status"], caller)
        with pytest.raises(AuthenticationError):
            await call(address, METHODS["status"], caller, metadata=guess)


async def test_what_an_admin_changes_is_written_down_with_who_did_it(authority, tmp_path):
    server = authority.write(tmp_path, "coordinator")
    caller = await load(authority.write(tmp_path / "caller", "admin", common_name="alice"))
    async with echo_server(server) as (address, _):
        with structlog.testing.capture_logs() as lines:
            await call(address, METHODS["status"], caller)
            await call(address, METHODS["mode"], caller)
    assert [(line["event"], line["method"], line["caller"]) for line in lines] == [
        ("auth.admin", METHODS["mode"], "alice")
    ]


async def test_a_stranger_that_calls_and_calls_gets_one_line_of_the_log(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {SECRET.format('client')}\n")
    async with echo_server(SecurityConfig(token_file=str(tokens))) as (address, _):
        with structlog.testing.capture_logs() as lines:
            for _ in range(20):
                with pytest.raises(AuthenticationError):
                    await call(address, METHODS["generate"])
    assert [line["event"] for line in lines] == ["auth.refused"]
