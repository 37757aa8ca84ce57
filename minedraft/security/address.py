"""Checks addresses that people give: the form `host:port`, and whether this process may listen.

Asked before any work is done. gRPC takes what it is given: it would dial port 443 for a host alone,
bind 34463 for 99999, and say of a port in use no more than that it did not work.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

from minedraft.errors import ConfigError

_MAX_PORT: Final = 65535
_MAX_NAME_CHARS: Final = 253
_NO_NAME: Final = frozenset(" /\\@:,;?#[]%\"'`<>|&$*(){}^=+!")
"""Characters of URLs, shells and lists that no host name has."""
_NOT_OURS: Final = "not an address of this machine"


def check_listen(setting: str, address: str) -> None:
    """Refuse an address where no server can listen; port 0 is any free one.

    Raises:
        ConfigError: names `setting` and `address`.
    """
    _check(setting, address, address, lowest=0)


def check_dial(setting: str, address: str) -> None:
    """Refuse an address that no client can dial. gRPC's `dns:///host:port` is fine.

    Raises:
        ConfigError: names `setting` and `address`.
    """
    _check(setting, address, address.removeprefix("dns:///"), lowest=1)


def check_free(setting: str, address: str) -> None:
    """Check that this process can listen at an address, before it loads a model.

    Raises:
        ConfigError: not `host:port`, not an address of this machine, or the port is in use.
    """
    check_listen(setting, address)
    if address.startswith("unix:"):
        return
    refusal = _refusal(address)
    if refusal is not None:
        is_ours = refusal.errno != errno.EADDRNOTAVAIL
        why = (refusal.strerror or str(refusal)) if is_ours else _NOT_OURS
        port = address.rpartition(":")[2]
        raise ConfigError(
            f"{setting}={address!r}: port {port} cannot be used: {why}; "
            f"choose another with --{setting.replace('_', '-')}"
        )


def check_ports(listen: str, health_listen: str | None) -> None:
    """Check both ports of a service with `check_free`.

    Raises:
        ConfigError: see there.
    """
    check_free("listen", listen)
    if health_listen:
        check_free("health_listen", health_listen)


def _check(setting: str, address: str, place: str, *, lowest: int) -> None:
    host, _, port = place.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_MAX_PORT))
    is_port = is_number and lowest <= int(port) <= _MAX_PORT
    is_socket = address.startswith("unix:") and len(address) > len("unix:")
    if not (_is_host(host) and is_port) and not is_socket:
        shown = address if len(address) <= _MAX_NAME_CHARS else f"{address[:_MAX_NAME_CHARS]}..."
        raise ConfigError(
            f"{setting}={shown!r}: want host:port with a port of {lowest}..{_MAX_PORT}"
        )


def _is_host(host: str) -> bool:
    """Whether the text can be a host name or an address; an IPv6 address has brackets."""
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return host.endswith("]")
    labels = host.removesuffix(".").split(".")
    is_name = host.isprintable() and len(host) <= _MAX_NAME_CHARS and not _NO_NAME & set(host)
    return is_name and all(labels)


def _refusal(address: str) -> OSError | None:
    """Try what gRPC would: every address of the name. One in use is too many, one of ours enough.

    Returns:
        Why not; None: it works.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as err:
        return err
    except UnicodeError:  # a label that no name can have
        return OSError(errno.EADDRNOTAVAIL, "")
    tries = [(family, where) for family, _, _, _, where in found]
    if host == "::":  # without IPv6 it is every address of IPv4
        tries.append((socket.AF_INET, ("0.0.0.0", int(port))))  # noqa: S104  # as was asked
    refusals = [_bind(family, where) for family, where in tries]
    in_use = [err for err in refusals if err is not None and err.errno == errno.EADDRINUSE]
    return in_use[0] if in_use else None if None in refusals else refusals[0]


def _bind(family: int, where: object) -> OSError | None:
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            probe.bind(where)  # type: ignore[arg-type]  # of the family that it came with
    except OSError as err:
        return err
    return None
