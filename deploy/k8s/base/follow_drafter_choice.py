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
from minedraft.exit import end_at_sigterm
from minedraft.security.secret import security_in

if TYPE_CHECKING:
    from minedraft.admin import WorkerStatus

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


def directory_of(wanted: str) -> Path:
    """Follow links, as a drafter does: a model is called after the directory at the end of them.

    Where models are not mounted the path stands for itself.
    """
    try:
        return Path(wanted).resolve()
    except (OSError, RuntimeError):  # a loop of links, a volume that is away
        return Path(wanted)


class Follower:
    """What is known from one look to the next: nothing that a restart would miss for long."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, Path], str] = {}
        """Address and directory -> what the drafter calls it, by a swap that was done. Its volume
        may have links that ours has not: without this it would be swapped for ever."""
        self._refused_until: dict[tuple[str, Path], float] = {}

    def look(self, client: SyncClient, file: Path) -> None:
        """Look once; swap what is not as wanted, one drafter after the other."""
        wanted = wanted_model(file)
        if not wanted:
            return
        directory = directory_of(wanted)
        for worker in client.status().workers:
            if worker.role != "drafter" or not worker.connected or self._has(worker, directory):
                continue
            if time.monotonic() >= self._refused_until.get((worker.address, directory), 0.0):
                self._swap(client, worker.address, wanted, directory)

    def _has(self, worker: WorkerStatus, directory: Path) -> bool:
        return worker.model.name == self._loaded.get((worker.address, directory), directory.name)

    def _swap(self, client: SyncClient, address: str, wanted: str, directory: Path) -> None:
        try:
            result = client.swap_drafter(model=wanted, replace=address)
        except MineDraftError as err:
            self._refused_until[address, directory] = time.monotonic() + RETRY_S
            log.warning("choice.refused", address=address, model=wanted, why=str(err))
            return
        self._loaded[address, directory] = result.model.name
        log.info("choice.swapped", address=address, model=result.model.name, epoch=result.epoch)


def main() -> None:
    """Follow until told to leave."""
    end_at_sigterm()
    logging.configure("follow_drafter_choice", json=True)
    address, file = os.environ["MINEDRAFT_ADDRESS"], Path(os.environ["CHOICE_FILE"])
    tls = Path(os.environ.get("TLS_DIRECTORY", ""))
    follower = Follower()
    while True:
        try:
            # Looked for at each connection: the secret may come when this has started.
            with SyncClient(address, security=security_in(tls)) as client:
                while True:
                    follower.look(client, file)
                    time.sleep(PERIOD_S)
        except MineDraftError as err:
            log.warning("choice.waiting", why=str(err))
            time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
