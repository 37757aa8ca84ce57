import asyncio
import socket

import pytest

from minedraft.errors import ConfigError
from minedraft.services.coordinator.workers.discovery import DrafterName

NAME = DrafterName("drafter", 50051)


@pytest.fixture
def answers(monkeypatch):
    """Let the loop's resolver answer with addresses, or fail with an error number."""

    def set_answer(answer):
        async def getaddrinfo(_self, host, port, *, type):  # noqa: A002  asyncio's name
            assert (host, port, type) == ("drafter", 50051, socket.SOCK_STREAM)
            if isinstance(answer, int):
                raise socket.gaierror(answer, "no")
            return [(socket.AF_INET, type, 6, "", (address, port)) for address in answer]

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(type(loop), "getaddrinfo", getaddrinfo)

    return set_answer


def test_a_name_has_a_prefix_and_an_address_has_none():
    assert DrafterName.parse("dns:drafter:50051") == NAME
    assert DrafterName.parse("dns:///drafter:50051") == NAME
    assert DrafterName.parse("drafter:50051") is None
    assert DrafterName.parse("127.0.0.1:50051") is None


@pytest.mark.parametrize(
    "address",
    ["dns:", "dns:drafter", "dns::1", "dns:drafter:0", "dns:d:70000", "dns:d:\u0661", "dns:a b:1"],
)
def test_a_name_without_host_or_port_is_refused(address):
    with pytest.raises(ConfigError, match="want dns:host:port"):
        DrafterName.parse(address)


async def test_every_address_of_a_name_is_a_drafter(answers):
    answers(["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"])
    assert await NAME.resolve() == {"10.0.0.1:50051", "10.0.0.2:50051", "[fd00::1]:50051"}


async def test_a_name_without_addresses_stands_for_nobody(answers):
    answers(socket.EAI_NONAME)
    assert await NAME.resolve() == frozenset()


async def test_a_resolver_that_fails_says_nothing(answers):
    answers(socket.EAI_AGAIN)
    assert await NAME.resolve() is None
