"""Makes drafters use the model that a file names, while everything runs. Never restarts anything.

The file is desired state: it is compared with what the drafters say they have, again and again, so
that an edit, a drafter that came back and a swap that failed are all the same case. It runs beside
the coordinator as an operator; the drafters decide which directories may be named.
"""
# ruff: noqa: INP001

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from minedraft import log as logging
from minedraft.client import SyncClient
from minedraft.errors import MineDraftError
from minedraft.security import SecurityConfig

if TYPE_CHECKING:
    from minedraft.admin import Status

log = structlog.get_logger("follow_drafter_choice")

PERIOD_S = 5.0
RETRY_S = 60.0
"""Seconds until a model that was refused is tried again."""


def wanted_model(file: Path) -> str:
    """Read the choice. The kubelet swaps a link above the file: the path is opened anew each time.

    Returns:
        A directory; "" if nothing is chosen.
    """
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def drafters_to_swap(status: Status, wanted: str) -> list[str]:
    """Addresses of the drafters that have joined with another model, by its directory's name."""
    name = Path(wanted).name
    return [
        worker.address
        for worker in status.workers
        if worker.role == "drafter" and worker.connected and worker.model.name != name
    ]


def follow(client: SyncClient, file: Path, refused_until: dict[tuple[str, str], float]) -> None:
    """Look once; swap what is not as wanted, one drafter after the other."""
    wanted = wanted_model(file)
    if not wanted:
        return
    for address in drafters_to_swap(client.status(), wanted):
        if time.monotonic() < refused_until.get((address, wanted), 0.0):
            continue
        try:
            result = client.swap_drafter(model=wanted, replace=address)
            log.info("choice.swapped", address=address, model=wanted, epoch=result.epoch)
        except MineDraftError as err:
            refused_until[address, wanted] = time.monotonic() + RETRY_S
            log.warning("choice.refused", address=address, model=wanted, why=str(err))


def security_in(directory: Path) -> SecurityConfig:
    """Build the security of a secret's directory; plaintext if the secret is not there."""
    if not (directory / "tls.crt").exists():
        return SecurityConfig()
    return SecurityConfig(
        tls_cert=str(directory / "tls.crt"),
        tls_key=str(directory / "tls.key"),
        tls_ca=str(directory / "ca.crt"),
    )


def main() -> None:
    """Follow until killed."""
    logging.configure("follow_drafter_choice", json=True)
    environ = os.environ
    security = security_in(Path(environ.get("TLS_DIRECTORY", "")))
    file = Path(environ["CHOICE_FILE"])
    refused_until: dict[tuple[str, str], float] = {}
    while True:
        try:
            with SyncClient(environ["MINEDRAFT_ADDRESS"], security=security) as client:
                while True:
                    follow(client, file, refused_until)
                    time.sleep(PERIOD_S)
        except MineDraftError as err:
            log.warning("choice.waiting", why=str(err))
            time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
