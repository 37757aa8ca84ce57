"""A certificate authority for tests: issues, and writes what a `SecurityConfig` names."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minedraft.security.config import SecurityConfig

_DAY = dt.timedelta(days=1)


class Authority:
    """One CA."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key)
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        self._cert = builder.add_extension(constraint, critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.pem = self._cert.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, *roles: str, common_name: str = "somebody", dns: tuple[str, ...] = ()
    ) -> tuple[bytes, bytes]:
        """A certificate for this machine with `minedraft:role:<role>` URIs, and its key; PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [
            *(x509.DNSName(name) for name in ("localhost", *dns)),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            *(x509.UniformResourceIdentifier(f"minedraft:role:{role}") for role in roles),
        ]
        cert = (
            _builder(_name(common_name), self._name, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return cert.public_bytes(serialization.Encoding.PEM), pem

    def write(self, directory: Path, *roles: str, **options) -> SecurityConfig:
        """Issue into a directory; again is a rotation."""
        directory.mkdir(exist_ok=True, parents=True)
        cert, key = self.issue(*roles, **options)
        files = {"tls_cert": cert, "tls_key": key, "tls_ca": self.pem}
        for name, content in files.items():
            (directory / name).write_bytes(content)
        return SecurityConfig(**{name: str(directory / name) for name in files})


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
