"""A request belongs to the caller that began it: on an open port, with tokens, under mutual TLS."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import pytest

from minedraft.api import Finished, ResumedSample, Started
from minedraft.client import Client, RetryPolicy
from minedraft.client.options import build_request
from minedraft.errors import DuplicateRequestError, SupersededError
from minedraft.security.config import SecurityConfig
from minedraft.transport.channel import open_channel
from minedraft.transport.public_stub import PublicStub
from minedraft.types import FinishReason
from tests.certificates import Authority
from tests.integration.cluster import cluster, until_status
from tests.integration.secured import secured_cluster

PROMPT = list(range(5, 20))
NUM_TOKENS = 400
LONG = {"temperature": 0, "max_tokens": NUM_TOKENS, "ignore_eos": True, "request_id": "mine"}
PATIENT = RetryPolicy(first_delay_s=0.02, max_delay_s=0.1)
TOKEN, OTHER_TOKEN = b"t" * 16, b"o" * 16


@pytest.fixture(scope="module")
def expected(plain_greedy):
    return plain_greedy(PROMPT, NUM_TOKENS)


@asynccontextmanager
async def stub_of(address):
    channels = open_channel(address, own_connection=True), open_channel(address)
    stub = PublicStub(*channels)
    try:
        yield stub
    finally:
        await stub.close()


def raw_request(resume_token, resumed=()):
    request = build_request(PROMPT, None, {**LONG, "seed": 1})
    return dataclasses.replace(request, resume_token=resume_token, resumed=resumed)


async def until_superseded(events):
    """Events up to the error."""
    seen = []
    with pytest.raises(SupersededError, match="'mine'"):
        seen.extend([event async for event in events])
    return seen


async def check_two(one, other, away, back, expected):
    """Both ask with one id while something is away: one is served, the other told why not."""
    await away()
    running = [asyncio.create_task(client.generate(PROMPT, **LONG)) for client in (one, other)]
    await asyncio.sleep(0)
    await back()
    ends = await asyncio.gather(*running, return_exceptions=True)
    (served,) = (end for end in ends if not isinstance(end, Exception))
    (refused,) = (end for end in ends if isinstance(end, Exception))
    assert isinstance(refused, DuplicateRequestError)
    assert served.token_ids == expected
    assert served.finish_reason is FinishReason.LENGTH
    status = await until_status(one, lambda s: s.num_running == 0)
    assert status.num_blocks_used == 0


@pytest.mark.parametrize("what", ["verifier", "coordinator"])
async def test_of_two_callers_with_one_id_one_is_served_and_the_other_refused(
    target_dir, expected, what
):
    async with (
        cluster(target_dir, mode=(1, 8, 0)) as c,
        await Client.connect(c.client.address, retry=PATIENT) as one,
        await Client.connect(c.client.address, retry=PATIENT) as other,
    ):

        async def away():
            if what == "coordinator":
                await c.coordinator.kill()
                return
            await c.coordinator.stop()
            await c.verifier.stop()
            c.coordinator = c.coordinator.again()
            await c.coordinator.start()  # no verifier has joined it yet

        async def back():
            service = getattr(c, what).again()
            setattr(c, what, service)
            await service.start()

        await check_two(one, other, away, back, expected)


async def test_a_stranger_on_an_open_port_that_guesses_an_id_has_no_say(target_dir, expected):
    async with (
        cluster(target_dir, mode=(1, 8, 0)) as c,
        stub_of(c.client.address) as stranger,
        await Client.connect(c.client.address) as other,
    ):
        stream = c.client.stream(PROMPT, **LONG)
        deltas = aiter(stream)
        await anext(deltas)
        assert await other.abort("mine") == 0
        for resume_token in (b"", OTHER_TOKEN):
            assert await stranger.abort(["mine"], [resume_token], timeout_s=5) == 0
            for resumed in ((), (ResumedSample(0, ()),)):
                with pytest.raises(DuplicateRequestError):
                    async for _ in stranger.generate(
                        raw_request(resume_token, resumed), timeout_s=5
                    ):
                        pass
        async for _ in deltas:
            pass
        assert stream.completion.token_ids == expected
        assert stream.completion.finish_reason is FinishReason.LENGTH


async def test_a_client_aborts_what_it_streams_by_the_id_that_the_server_drew(target_dir):
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        stream = c.client.stream(PROMPT, **{**LONG, "request_id": ""})
        async for _ in stream:
            await c.client.abort(stream.request_id)
        assert stream.completion.finish_reason is FinishReason.ABORT
        assert await c.client.abort(stream.request_id) == 0


async def test_who_is_superseded_gets_a_typed_error_and_never_a_silent_end(target_dir, expected):
    async with cluster(target_dir, mode=(1, 8, 0)) as c, stub_of(c.client.address) as stub:
        old = stub.generate(raw_request(TOKEN), timeout_s=20)
        assert isinstance(await anext(old), Started)
        first = await anext(old)
        new = stub.generate(raw_request(TOKEN, (ResumedSample(0, first.token_ids),)), timeout_s=20)
        tokens = list(first.token_ids)
        assert isinstance(await anext(new), Started)
        assert not any(isinstance(event, Finished) for event in await until_superseded(old))
        async for event in new:
            tokens += getattr(event, "token_ids", ())
        assert tuple(tokens) == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", ["tokens", "certificates"])
async def test_where_callers_prove_who_they_are_a_request_is_one_callers(
    target_dir, tmp_path, expected, way
):
    authority = Authority()
    roles = ("coordinator", "verifier", "drafter", "admin")
    security = {role: authority.write(tmp_path / role, role) for role in roles}
    people = {}
    secrets = {name: f"{name}-secret-0123456789" for name in ("alice", "bob", "root")}
    for name in ("alice", "bob"):
        people[name] = authority.write(tmp_path / name, "client", common_name=name)
        if way == "tokens":
            file = tmp_path / name / "tokens"
            file.write_text(f"client {secrets[name]}\n")
            people[name] = SecurityConfig(tls_ca=people[name].tls_ca, token_file=str(file))
    if way == "tokens":
        file = tmp_path / "tokens"
        file.write_text(
            f"client {secrets['alice']}\nclient {secrets['bob']}\nadmin {secrets['root']}\n"
        )
        security["coordinator"] = dataclasses.replace(security["coordinator"], token_file=str(file))
        security["admin"] = SecurityConfig(tls_ca=security["admin"].tls_ca, token_file=str(file))
    async with (
        secured_cluster(target_dir, security, link="grpc") as c,
        await Client.connect(c.coordinator, security=people["alice"]) as alice,
        await Client.connect(c.coordinator, security=people["bob"]) as bob,
    ):
        stream = alice.stream(PROMPT, **LONG)
        deltas = aiter(stream)
        await anext(deltas)
        assert await bob.abort("mine") == 0
        assert await c.admin.abort("mine") == 0
        with pytest.raises(DuplicateRequestError):
            await bob.generate(PROMPT, **LONG)
        async for _ in deltas:
            pass
        assert stream.completion.token_ids == expected

        async for _ in alice.stream(PROMPT, **LONG):
            if way == "certificates":  # a renewed certificate is still the same caller's
                authority.write(tmp_path / "alice", "client", common_name="alice")
            async with await Client.connect(c.coordinator, security=people["alice"]) as again:
                assert await again.abort("mine") == 1
            break
