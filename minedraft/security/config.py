"""How a process proves its identity and whom it trusts. Holds paths, never the files' content.

One object for servers, workers' connections, the SDK and the command line. Pure: reads no file.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from minedraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """Files with certificates and tokens. Empty: plaintext, which only loopback may use."""

    tls_cert: str = field(default="", metadata={"env": "MINEDRAFT_TLS_CERT"})
    """Certificate chain of this side (PEM); names its role."""
    tls_key: str = field(default="", metadata={"env": "MINEDRAFT_TLS_KEY"})
    """Private key of that certificate (PEM)."""
    tls_ca: str = field(default="", metadata={"env": "MINEDRAFT_TLS_CA"})
    """Authorities that this side trusts (PEM). A server without a token file then demands client
    certificates (mTLS)."""
    token_file: str = field(default="", metadata={"env": "MINEDRAFT_TOKEN_FILE"})
    """Bearer tokens, one `role token` per line: this side's own, and those that a server accepts
    instead of certificates."""
    insecure: bool = field(default=False, metadata={"env": "MINEDRAFT_INSECURE"})
    """Listen beyond loopback without proof from callers. For closed test networks."""

    def __post_init__(self) -> None:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError(
                f"tls_cert={self.tls_cert!r} and tls_key={self.tls_key!r}: want both or neither"
            )

    @property
    def is_tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.tls_cert or self.tls_ca)

    @property
    def is_mtls(self) -> bool:
        """Whether a server with these settings demands certificates of its callers.

        One or the other: with tokens it asks for tokens, and its certificate is still what this
        side shows to others.
        """
        return bool(self.tls_cert and self.tls_ca and not self.token_file)

    @property
    def authenticates(self) -> bool:
        """Whether a server with these settings identifies its callers."""
        return self.is_mtls or bool(self.token_file)

    @property
    def has_files(self) -> bool:
        """Whether there is anything to read."""
        return self.is_tls or bool(self.token_file)

    def check_server(self, setting: str, address: str) -> None:
        """Check that a server may listen at an address.

        Args:
            setting: What the address is called in the service's configuration.
            address: `host:port`, or a host alone.

        Raises:
            ConfigError: it is beyond loopback and callers would prove nothing, or would send
                their tokens in the clear; or it is half of a TLS configuration.
        """
        if self.tls_ca and not self.tls_cert:
            raise ConfigError(
                f"tls_ca={self.tls_ca!r}: a server needs tls_cert and tls_key beside it"
            )
        if is_loopback(address):
            return
        if self.token_file and not self.is_tls:
            raise ConfigError(
                f"token_file={self.token_file!r}: {setting}={address!r} is beyond loopback, where "
                "tokens travel under TLS only; set tls_cert and tls_key"
            )
        if not self.authenticates and not self.insecure:
            raise ConfigError(
                f"{setting}={address!r}: beyond loopback callers must prove who they are: set "
                "tls_cert, tls_key and tls_ca (mTLS), or tls_cert, tls_key and token_file; or say "
                "insecure (--insecure) where everybody who can connect may do everything"
            )

    def check_client(self, address: str) -> None:
        """Check that no token goes to an address in the clear.

        Raises:
            ConfigError: they would.
        """
        if self.token_file and not self.is_tls and not is_loopback(address):
            raise ConfigError(
                f"token_file={self.token_file!r}: {address!r} is beyond loopback, where tokens "
                "travel under TLS only; set tls_ca"
            )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `host:port` (or a host alone).

    Names other than `localhost` count as beyond: what they mean is not in our hands.
    """
    host, colon, _port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host = address  # a host alone, perhaps an IPv6 one
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
