from __future__ import annotations

import errno
import socket

import pytest

from minedraft.errors import ConfigError
from minedraft.security import address
from minedraft.security.address import check_dial, check_free, check_listen, check_ports

NONE = [
    "",
    "localhost",
    "50052",
    ":50052",
    "h:",
    "h:http",
    "h:-1",
    "h:99999",
    "::1:50052",
    "h:\u0661",
    "h:" + "9" * 5000,
    "http://h:1",
    "user@h:1",
    "a b:1",
    "h,g:1",
    "h/x:1",
    "h\n:1",
    "[::1:1",
    "[h]:1",
    "[]:1",
    "a..b:1",
    ".:1",
    "h" * 254 + ":1",
    "unix:",
]


@pytest.fixture
def taken():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


@pytest.mark.parametrize("value", NONE)
@pytest.mark.parametrize(("check", "lowest"), [(check_listen, 0), (check_dial, 1), (check_free, 0)])
def test_what_is_no_address_is_named_with_its_setting(check, lowest, value):
    with pytest.raises(ConfigError) as caught:
        check("listen", value)
    shown = value if len(value) <= 253 else f"{value[:253]}..."
    assert str(caught.value) == f"listen={shown!r}: want host:port with a port of {lowest}..65535"


@pytest.mark.parametrize(
    "value",
    [
        "h:65535",
        "[::1]:50052",
        "[fe80::1%eth0]:1",
        "0.0.0.0:1",
        "unix:/tmp/s",
        "my_pod-0.svc.:1",
        "b\u00fccher.example:1",
    ],
)
def test_addresses_pass(value):
    check_listen("listen", value)
    check_dial("address", value)


def test_a_port_of_0_is_for_listening_and_a_resolver_for_dialling():
    check_listen("listen", "h:0")
    check_dial("address", "dns:///h:1")
    for check, value in ((check_dial, "h:0"), (check_listen, "dns:///h:1")):
        with pytest.raises(ConfigError, match="want host:port"):
            check("a", value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]"])
def test_a_port_in_use_is_named_with_its_option(host, taken):
    with pytest.raises(ConfigError) as caught:
        check_free("health_listen", f"{host}:{taken}")
    assert str(caught.value) == (
        f"health_listen='{host}:{taken}': port {taken} cannot be used: Address already in use; "
        "choose another with --health-listen"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::]"])
def test_a_free_port_passes_and_is_left_free(host):
    check_free("listen", f"{host}:0")
    check_free("listen", "unix:/tmp/not-looked-at")


def test_an_address_of_another_machine_is_not_said_to_be_in_use():
    with pytest.raises(ConfigError, match="not an address of this machine") as caught:
        check_free("listen", "192.0.2.1:50052")  # TEST-NET-1, nobody's
    assert "in use" not in str(caught.value)


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70 + ".invalid"])
def test_a_name_without_an_address_is_refused(host):
    with pytest.raises(ConfigError, match=f"listen='{host}:1': port 1 cannot be used"):
        check_free("listen", f"{host}:1")


def test_every_address_without_ipv6_is_every_one_of_ipv4(monkeypatch, taken):
    bind = address._bind

    def no_ipv6(family, where):
        if family == socket.AF_INET6:
            return OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return bind(family, where)

    monkeypatch.setattr(address, "_bind", no_ipv6)
    check_free("listen", "[::]:0")
    with pytest.raises(ConfigError, match="already in use"):
        check_free("listen", f"[::]:{taken}")
    with pytest.raises(ConfigError, match="not supported"):
        check_free("listen", "[::1]:0")


def test_both_ports_of_a_service_are_looked_at(taken):
    check_ports("127.0.0.1:0", None)
    check_ports("127.0.0.1:0", "127.0.0.1:0")
    with pytest.raises(ConfigError, match="choose another with --listen"):
        check_ports(f"127.0.0.1:{taken}", None)
    with pytest.raises(ConfigError, match="choose another with --health-listen"):
        check_ports("127.0.0.1:0", f"127.0.0.1:{taken}")
