"""The current content of a `SecurityConfig`'s files: reads them at start and after changes.

Secrets stay in this object's memory: they are in no repr, log line or error. A file that cannot be
used when it changes (half written, a key that does not fit) is logged, and what was there before
stays in use; at start it is a `ConfigError`.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import structlog

from minedraft.errors import ConfigError
from minedraft.security.tokens import TokenTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minedraft.security.config import SecurityConfig
    from minedraft.security.roles import Role

log = structlog.get_logger(__name__)

POLL_S: Final = 1.0
"""Seconds between two looks for changed files; handshakes look at once."""
_MAX_FILE_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class _Held:
    cert: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)
    ca: bytes = field(default=b"", repr=False)
    tokens: TokenTable = field(default_factory=TokenTable, repr=False)


class Credentials:
    """Certificates and tokens of one process. Thread-safe. Reads files, so keep off the event loop.

    Args:
        config: Where they are.
        own: Roles this process may call others as; the first with a token in the file is taken.

    Raises:
        ConfigError: a file cannot be read or used; names the setting.
    """

    def __init__(self, config: SecurityConfig, own: Sequence[Role] = ()) -> None:
        self.config: Final = config
        self.generation = 0
        """Grows with every change; connections of a lower number are outdated."""
        self._own = tuple(own)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._complaint = ""
        self._held = _read(config)

    @property
    def tokens(self) -> TokenTable:
        """The tokens that the server accepts."""
        return self._held.tokens

    @property
    def own_token(self) -> str:
        """The token that this process sends; "": none."""
        return self._held.tokens.own(self._own)

    def refresh(self) -> bool:
        """Read the files again.

        Returns:
            Whether something else is in use now.
        """
        with self._lock:
            try:
                held = _read(self.config)
            except ConfigError as err:
                if str(err) != self._complaint:
                    log.warning("credentials.unusable", why=str(err), kept="what was there before")
                self._complaint = str(err)
                return False
            self._complaint = ""
            if held == self._held:
                return False
            self._held = held
            self.generation += 1
            log.info("credentials.reloaded", generation=self.generation)
            return True

    def watch(self, period_s: float = POLL_S) -> None:
        """Watch the files in a thread until `close`. Idempotent."""
        if self._thread is not None or not self.config.has_files:
            return

        def follow() -> None:
            while not self._closed.wait(period_s):
                self.refresh()

        self._thread = threading.Thread(target=follow, name="credentials", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, without waiting for the thread: it holds nothing."""
        self._closed.set()

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a port; every handshake uses the files' current content."""
        used = self.generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:  # in a thread of grpc's
            nonlocal used
            self.refresh()
            if self.generation == used:
                return None
            used = self.generation
            return self._certificates()

        credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            self._certificates(),
            fetch,  # type: ignore[arg-type]  # None is "as before"; the stubs forget it
            require_client_authentication=self.config.is_mtls,
        )
        return credentials

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a new channel; a channel does not reload them."""
        held = self._held
        return grpc.ssl_channel_credentials(
            root_certificates=held.ca or None,
            private_key=held.key or None,
            certificate_chain=held.cert or None,
        )

    def _certificates(self) -> grpc.ServerCertificateConfiguration:
        held = self._held
        return grpc.ssl_server_certificate_configuration(
            [(held.key, held.cert)], root_certificates=held.ca or None
        )


def _read(config: SecurityConfig) -> _Held:
    """Read all files, twice if one changes meanwhile, and check that they fit each other."""
    held = _read_once(config)
    if config.is_tls:
        _check_certificates(config)
        if _read_once(config) != held:  # what was checked is not what was read
            raise ConfigError(f"tls_cert={config.tls_cert!r}: the files are being written")
    return held


def _read_once(config: SecurityConfig) -> _Held:
    text = _bytes("token_file", config.token_file).decode("utf-8", "replace")
    return _Held(
        cert=_bytes("tls_cert", config.tls_cert),
        key=_bytes("tls_key", config.tls_key),
        ca=_bytes("tls_ca", config.tls_ca),
        tokens=TokenTable.parse(text, config.token_file),
    )


def _bytes(setting: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        with Path(path).open("rb") as file:
            found = file.read(_MAX_FILE_BYTES + 1)
    except OSError as err:
        raise ConfigError(f"{setting}={path!r}: {err.strerror}") from None
    if not found.strip() or len(found) > _MAX_FILE_BYTES:
        raise ConfigError(f"{setting}={path!r}: {len(found)} bytes, want 1..{_MAX_FILE_BYTES}")
    return found


def _check_certificates(config: SecurityConfig) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.tls_cert:
        try:
            # A key with a password would otherwise be asked for at the terminal.
            context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
        except (OSError, ValueError) as err:  # SSLError is an OSError
            raise ConfigError(
                f"tls_cert={config.tls_cert!r}, tls_key={config.tls_key!r}: not a certificate and "
                f"its key in PEM: {getattr(err, 'reason', None) or type(err).__name__}"
            ) from None
    if config.tls_ca:
        try:
            context.load_verify_locations(config.tls_ca)
        except OSError as err:
            raise ConfigError(
                f"tls_ca={config.tls_ca!r}: no certificates in PEM: "
                f"{getattr(err, 'reason', None) or type(err).__name__}"
            ) from None
