"""Who a client is to the coordinator, and what its environment says of the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from minedraft.errors import ConfigError
from minedraft.security.credentials import Credentials
from minedraft.security.roles import Role

if TYPE_CHECKING:
    from minedraft.security.config import SecurityConfig

_OWN_ROLES: Final = (Role.GATEWAY, Role.ADMIN, Role.CLIENT, Role.MONITOR)
"""The first with a token in the file is taken. A gateway's file has its callers' tokens too."""


def identify(security: SecurityConfig) -> Credentials:
    """Read the credential files and watch them for changes.

    Raises:
        ConfigError: a file cannot be used, or the token file has no token to call with.
    """
    credentials = Credentials(security, own=_OWN_ROLES)
    if security.token_file and not credentials.own_token:
        raise ConfigError(
            f"token_file={security.token_file!r}: no line `client TOKEN`, `monitor TOKEN`, "
            "`admin TOKEN` or `gateway TOKEN`"
        )
    credentials.watch()
    return credentials


def proxy_hint(*, used: bool) -> str:
    """Tell whether the client uses the proxy that the environment names, if it names one."""
    host = urlsplit(getproxies().get("http", "")).hostname  # without the password it may have
    if not host:
        return ""
    if used:
        return f". It was asked for through the environment's http_proxy, {host}"
    return (
        f". The environment's http_proxy, {host}, was not used: want it with --http-proxy, "
        "in Python http_proxy=True"
    )
