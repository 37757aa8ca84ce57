from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import grpc
import pytest

from minedraft.errors import ConfigError
from minedraft.security.channel import open_aio_channel, open_sync_channel
from minedraft.security.config import SecurityConfig
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role
from tests.certificates import Authority
from tests.unit.minedraft.security.conftest import METHODS, echo_server, load

TOKEN = "client-token-0123456789"


async def test_without_files_it_is_grpcs_own_channel():
    for credentials in (None, Credentials(SecurityConfig())):
        channel = open_aio_channel("localhost:1", [], credentials)
        assert isinstance(channel, grpc.aio.Channel)
        await channel.close()


async def test_after_a_rotation_of_everything_new_calls_work_and_old_ones_go_on(
    authority, tmp_path
):
    old = Authority("old")
    server = old.write(tmp_path / "server", "coordinator")
    caller = old.write(tmp_path / "caller", "client", "admin")
    async with echo_server(server) as (address, server_credentials):
        mine = await load(caller)
        channel = open_aio_channel(address, [], mine)
        streaming, asking = (
            channel.unary_stream(METHODS["generate"]),
            channel.unary_unary(METHODS["status"]),
        )
        running = streaming(b"x", timeout=10)
        assert await running.read() == b"x"
        for directory, roles in (("server", ("coordinator",)), ("caller", ("client", "admin"))):
            authority.write(tmp_path / directory, *roles)
        # The server notices at the next handshake by itself; the caller's watch is run by hand.
        assert await asyncio.to_thread(mine.refresh)
        assert await asking(b"y", timeout=10) == b"y"
        assert server_credentials.generation == 1
        assert [await running.read() for _ in range(2)] == [b"x", b"x"]
        old_caller = await load(old.write(tmp_path / "late", "client", "admin"))
        late = open_aio_channel(address, [], old_caller)
        with pytest.raises(grpc.aio.AioRpcError):  # the old authority is believed no more
            await late.unary_unary(METHODS["status"])(b"z", timeout=10)
        await late.close()
        await channel.close()


async def test_only_so_many_connections_of_the_past_are_kept(authority, tmp_path):
    server = authority.write(tmp_path / "server", "coordinator")
    caller = authority.write(tmp_path / "caller", "admin")
    async with echo_server(server) as (address, _):
        mine = await load(caller)
        channel = open_aio_channel(address, [], mine)
        ask = channel.unary_unary(METHODS["status"])
        for _ in range(5):
            assert await ask(b"x", timeout=10) == b"x"
            authority.write(tmp_path / "caller", "admin")
            assert await asyncio.to_thread(mine.refresh)
        assert await ask(b"x", timeout=10) == b"x"
        assert len(channel._all()) == 3
        await channel.close()


async def test_a_rotated_token_is_sent_with_the_next_call_and_the_old_one_opens_nothing(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"admin {TOKEN}\n")
    config = SecurityConfig(token_file=str(tokens))
    async with echo_server(config) as (address, server_credentials):
        mine = await load(config, Role.ADMIN)
        channel = open_aio_channel(address, [], mine)
        ask = channel.unary_unary(METHODS["status"])
        assert await ask(b"x", timeout=10, metadata=[("other", "kept")]) == b"x"
        tokens.write_text(f"admin {TOKEN}-new\n")
        await asyncio.to_thread(server_credentials.refresh)
        with pytest.raises(grpc.aio.AioRpcError, match="UNAUTHENTICATED"):
            await ask(b"x", timeout=10)
        await asyncio.to_thread(mine.refresh)
        assert await ask(b"x", timeout=10) == b"x"
        await channel.close()


async def test_a_thread_calls_with_certificate_and_token_too(authority, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"drafter {TOKEN}\n")
    written = authority.write(tmp_path)
    server = dataclasses.replace(written, tls_ca="", token_file=str(tokens))
    caller = SecurityConfig(tls_ca=written.tls_ca, token_file=str(tokens))

    def in_thread(address: str) -> tuple[bytes, bytes]:
        mine = Credentials(caller, own=(Role.DRAFTER,))
        channel = open_sync_channel(address, [], mine)
        ask = channel.unary_unary(METHODS["link"])
        first = ask(b"a", timeout=10)
        Path(tokens).write_text(f"drafter {TOKEN}\nadmin {TOKEN}-admin\n")
        mine.refresh()
        second = ask.future(b"b", timeout=10).result()
        channel.close()
        return first, second

    async with echo_server(server) as (address, _):
        assert await asyncio.to_thread(in_thread, address) == (b"a", b"b")


async def test_a_token_is_not_sent_in_the_clear(tmp_path):
    (tmp_path / "tokens").write_text(f"client {TOKEN}\n")
    credentials = await load(SecurityConfig(token_file=str(tmp_path / "tokens")))
    with pytest.raises(ConfigError, match="TLS"):
        open_aio_channel("coordinator:50050", [], credentials)
