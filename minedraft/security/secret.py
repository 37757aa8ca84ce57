"""The directory where Kubernetes mounts a secret with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.security.config import SecurityConfig

if TYPE_CHECKING:
    from pathlib import Path


def security_in(directory: Path) -> SecurityConfig:
    """Build the `SecurityConfig` of a secret's directory; plaintext without the secret."""
    if not (directory / "tls.crt").exists():
        return SecurityConfig()
    return SecurityConfig(
        tls_cert=str(directory / "tls.crt"),
        tls_key=str(directory / "tls.key"),
        tls_ca=str(directory / "ca.crt"),
    )
