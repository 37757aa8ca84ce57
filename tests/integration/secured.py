"""Three services in one event loop, each with credentials of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.client import Client
from minedraft.security.config import SecurityConfig
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.app import run as run_drafter
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.app import run as run_verifier
from minedraft.services.verifier.config import VerifierConfig
from tests.integration.cluster import LOOPBACK, Service, until_up

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = SecurityConfig()


@dataclass
class Secured:
    """Addresses, and an operator's client."""

    coordinator: str
    verifier: str
    drafter: str
    admin: Client


@asynccontextmanager
async def secured_cluster(target: Path, security: dict[str, SecurityConfig], *, link: str):
    """Run all three with `security` by role; ready when the link is up."""
    worker = {"model": str(target), "listen": LOOPBACK, "block_size": 8, "num_blocks": 256}
    verifier = Service(
        run_verifier,
        VerifierConfig(**worker, grace_s=0.1, security=security.get("verifier", PLAIN)),
    )
    drafter = Service(
        run_drafter,
        DrafterConfig(
            **worker, kind="oracle", grace_s=0.1, security=security.get("drafter", PLAIN)
        ),
    )
    started = []
    try:
        addresses = []
        for service in (verifier, drafter):
            addresses.append(await service.start())
            started.append(service)
        coordinator = Service(
            run_coordinator,
            CoordinatorConfig(
                listen=LOOPBACK,
                verifier=addresses[0],
                drafters=(addresses[1],),
                tokenizer=str(target),
                num_batches=2,
                max_batch_size=2,
                num_draft_tokens=3,
                shape="fixed",
                link=link,
                reconnect_s=0.02,
                grace_s=0.1,
                trial_s=0.0,
                security=security.get("coordinator", PLAIN),
            ),
        )
        address = await coordinator.start()
        started.append(coordinator)
        async with await Client.connect(address, security=security.get("admin")) as admin:
            await until_up(admin, with_drafter=True)
            yield Secured(address, addresses[0], addresses[1], admin)
    finally:
        for service in reversed(started):
            await service.stop()
