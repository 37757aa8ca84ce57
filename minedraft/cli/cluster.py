"""Starts and stops coordinator, drafter and verifier together, and a gateway if wanted."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minedraft.cli import config_options
from minedraft.cli.child import Child
from minedraft.cli.roles import config_class
from minedraft.client import Client
from minedraft.errors import ConfigError
from minedraft.plans import MAX_ROWS
from minedraft.policy_options import PolicyOptions
from minedraft.security.address import check_free
from minedraft.security.config import SecurityConfig
from minedraft.types import Mode
from minedraft.worker.cores import parse_cores

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from minedraft.admin import CostStatus, Status

_COORDINATOR_GRACE_S = 12.0  # it lets live requests finish first
_WORKER_GRACE_S = 8.0
_JOIN_TIMEOUT_S = 60.0
_POLL_S = 0.05
_MAX_DRAFT_TOKENS = 16
_ROWS = 64


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What to start."""

    target: str
    """Directory of the target model."""
    draft: str = ""
    """Directory of the draft model; empty: no drafter, so AR only."""
    mode: Mode = field(default_factory=lambda: Mode(2, 8, 4))
    listen: str = "127.0.0.1:50050"
    """Where the coordinator listens; port 0: a free one."""
    dtype: str = "auto"
    kernels: str = "auto"
    drafter_kind: str = "model"
    num_blocks: int = 1024
    """KV blocks per worker."""
    prefix_cache: bool = True
    """Whether requests that begin alike share KV blocks."""
    run_ahead: str = "auto"
    """Tokens that the drafter draws ahead per row: see `DrafterConfig`."""
    fallback: str = "ngram"
    """What drafts where no drafts come."""
    link: str = ""
    """Transport of the token link; empty: the coordinator's default."""
    acceptance: str = "coupled"
    verifier_cpus: str = ""
    """Cores of the verifier; empty: the first ones, if there are enough for both workers."""
    drafter_cpus: str = ""
    threads: int = 1
    """Threads per worker, and per rank of the verifier."""
    tp_size: int = 1
    """Ranks of the verifier."""
    log_dir: str = ""
    """Directory for the logs; empty: a temporary one."""
    cost_cache: str = ""
    """Directory that keeps what steps cost; empty: nothing is kept."""
    trial_s: float = 0.0
    """Longest device time of trial steps, before the first request."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    """Shared by all three: their certificate or token file holds every role."""
    assignment: str = "balanced"
    """Who joins which batch: one of `ASSIGNMENTS`."""
    policies: PolicyOptions = field(default_factory=PolicyOptions)
    """Settings of the policies; the mode names one."""
    http: str = ""
    """Where a gateway listens; empty: there is none."""

    def worker_cpus(self) -> tuple[str, str]:
        """Choose cores for verifier and drafter: different ones, if there are enough."""
        cores = sorted(os.sched_getaffinity(0))
        ours = self.tp_size * self.threads
        if len(cores) < ours + self.threads:
            return self.verifier_cpus, self.drafter_cpus
        verifier, drafter = cores[:ours], cores[ours : ours + self.threads]
        return (
            self.verifier_cpus or ",".join(map(str, verifier)),
            self.drafter_cpus or ",".join(map(str, drafter)),
        )

    def spare_cpus(self) -> str:
        """Cores of the drafter that the coordinator may lend to the verifier; "": none.

        Only where it chooses shapes, both have cores of their own, and one rank computes.
        """
        verifier, drafter = map(parse_cores, self.worker_cpus())
        is_lent = self.draft and self.mode.shape == "auto" and self.tp_size == 1
        if not is_lent or not verifier or not drafter or verifier & drafter:
            return ""
        return ",".join(map(str, sorted(drafter)))

    def on_all_cores(self) -> ClusterSpec:
        """Describe plain decoding with the target alone, on the cores that both workers have here.

        One batch takes as many requests as all batches here.
        """
        num_threads = self.threads * (self.tp_size + 1)
        return replace(
            self,
            draft="",
            drafter_kind="model",
            mode=Mode(1, self.mode.num_slots, 0),
            listen="127.0.0.1:0",
            http="",
            verifier_cpus=",".join(filter(None, self.worker_cpus())),
            drafter_cpus="",
            threads=min(num_threads, len(os.sched_getaffinity(0))),
            tp_size=1,
            cost_cache="",
            trial_s=0.0,
        )


class Cluster:
    """The processes. `async with` starts and stops them.

    Args:
        spec: What to start.
        on_ready: Called with role and address of each process once it serves.

    Raises:
        ConfigError: On entry: the port is in use.
        ChildError: On entry: a process ended instead of serving.
    """

    def __init__(
        self, spec: ClusterSpec, *, on_ready: Callable[[str, str], None] = lambda _role, _at: None
    ) -> None:
        self._spec = spec
        self._on_ready = on_ready
        self._children: list[Child] = []  # in the order of starting
        self.log_dir = Path()
        self.address = ""
        self.http_address = ""
        """Of the gateway, if there is one."""

    async def __aenter__(self) -> Self:
        check_free("listen", self._spec.listen)
        if self._spec.http:
            check_free("http", self._spec.http)
        self.log_dir = await asyncio.to_thread(_make_log_dir, self._spec.log_dir)
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stop()

    async def watch(self) -> None:
        """Wait until the first process ends.

        Raises:
            ChildError: when one has.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for child in self._children:
                    group.create_task(child.died(), name=f"watch-{child.name}")
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    async def measured(self, on_progress: Callable[[CostStatus], None]) -> CostStatus:
        """Wait until trial steps are over: done, or given up because a request came.

        Args:
            on_progress: Called now and then.

        Returns:
            What is known of costs then, or after a minute.
        """
        async with await Client.connect(self.address, security=self._spec.security) as client:
            with suppress(TimeoutError):
                async with asyncio.timeout(_JOIN_TIMEOUT_S):
                    while (status := await client.status()).costs.is_measuring:
                        on_progress(status.costs)
                        await asyncio.sleep(_POLL_S)
            return status.costs

    async def _start(self) -> None:
        # Before models are loaded for it; where the workers are, it is told later.
        early = coordinator_settings(self._spec, "localhost:1", ())
        await asyncio.to_thread(_check, "coordinator", early)
        if self._spec.http:
            await asyncio.to_thread(_check, "gateway", gateway_settings(self._spec, "localhost:1"))
        workers = [await self._spawn("verifier", verifier_settings(self._spec))]
        if self._spec.draft:
            workers.append(await self._spawn("drafter", drafter_settings(self._spec)))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ready(worker)) for worker in workers]
        except ExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        verifier, *drafters = [task.result() for task in tasks]
        settings = coordinator_settings(self._spec, verifier, tuple(drafters))
        coordinator = await self._spawn("coordinator", settings)
        self.address = await self._ready(coordinator)
        await self._joined()
        if self._spec.http:
            settings = gateway_settings(self._spec, self.address)
            self.http_address = await self._ready(await self._spawn("gateway", settings))

    async def _joined(self) -> None:
        """Wait until workers and link are connected to the coordinator."""
        problem = ""
        try:
            async with asyncio.timeout(_JOIN_TIMEOUT_S):
                security = self._spec.security
                async with await Client.connect(self.address, security=security) as client:
                    # The coordinator notifies no client, so this polls.
                    while problem := _missing(await client.status()):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ConfigError(f"{problem}; logs in {self.log_dir}") from None

    async def _spawn(self, role: str, settings: dict[str, Any]) -> Child:
        """Start a role; a bad setting is refused here, by name."""
        threads = str(self._spec.threads)
        said_by_us = await asyncio.to_thread(_check, role, settings)
        child = await Child.start(
            role,
            [role, "--log-json"],
            settings=settings,
            log=self.log_dir / f"{role}.log",
            env={"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **said_by_us},
        )
        self._children.append(child)
        return child

    async def _ready(self, child: Child) -> str:
        address = await child.ready()
        self._on_ready(child.name, address)
        return address

    async def _stop(self) -> None:
        while self._children:  # the last one first: it still needs the others to drain
            child = self._children.pop()
            is_worker = child.name in {"drafter", "verifier"}
            await child.stop(grace_s=_WORKER_GRACE_S if is_worker else _COORDINATOR_GRACE_S)


def _check(role: str, settings: dict[str, Any]) -> dict[str, str]:
    """Check the settings of a role.

    Returns:
        Its variables that would say something else, empty.

    Raises:
        ConfigError: one is out of its range.
    """
    of_role = config_class(role)
    config_options.build(of_role, settings)
    return dict.fromkeys(config_options.variables(role, of_role, settings), "")


def verifier_settings(spec: ClusterSpec) -> dict[str, Any]:
    """Build the verifier's settings."""
    return {**_worker_settings(spec), "model": spec.target, "cpus": spec.worker_cpus()[0],
            "spare_cpus": spec.spare_cpus(), "acceptance": spec.acceptance,
            "tp_size": spec.tp_size}  # fmt: skip


def drafter_settings(spec: ClusterSpec) -> dict[str, Any]:
    """Build the drafter's settings."""
    return {**_worker_settings(spec), "model": spec.draft, "cpus": spec.worker_cpus()[1],
            "kind": spec.drafter_kind, "prefix_cache": spec.prefix_cache,
            "run_ahead": spec.run_ahead}  # fmt: skip


def _worker_settings(spec: ClusterSpec) -> dict[str, Any]:
    return {
        "listen": "127.0.0.1:0",
        "dtype": spec.dtype,
        "kernels": spec.kernels,
        "num_blocks": spec.num_blocks,
        "threads": spec.threads,
        **asdict(spec.security),
    }


def coordinator_settings(
    spec: ClusterSpec, verifier: str, drafters: tuple[str, ...]
) -> dict[str, Any]:
    """Build the coordinator's settings."""
    settings = {
        "listen": spec.listen,
        "verifier": verifier,
        "drafters": ",".join(drafters),
        "tokenizer": spec.target,
        "prefix_cache": spec.prefix_cache,
        **asdict(spec.mode),
        "assignment": spec.assignment,
        **asdict(spec.policies),
        "fallback": spec.fallback,
        # Room for `Admin.SetMode`: these two size the packets of the link for good.
        "max_draft_tokens": max(_MAX_DRAFT_TOKENS, spec.mode.num_draft_tokens),
        "max_rows": min(max(_ROWS, 2 * spec.mode.max_batch_size), MAX_ROWS),
        # What a test drafter's requests say is its whole point.
        "debug_requests": spec.drafter_kind != "model",
        "cost_cache": spec.cost_cache,
        "trial_s": spec.trial_s,
        **asdict(spec.security),
    }
    return {**settings, "link": spec.link} if spec.link else settings


def gateway_settings(spec: ClusterSpec, coordinator: str) -> dict[str, Any]:
    """Build the gateway's settings."""
    return {"listen": spec.http, "coordinator": coordinator, **asdict(spec.security)}


def _missing(status: Status) -> str:
    """Describe what the coordinator still lacks; empty: nothing."""
    if not status.workers:
        return "the coordinator knows no worker"
    wants_link = status.mode.num_draft_tokens > 0
    for worker in status.workers:
        why = f": {worker.last_error}" if worker.last_error else ""
        if not worker.connected:
            return f"the {worker.role} at {worker.address} has not joined{why}"
        if wants_link and worker.role == "drafter" and not worker.link_epoch:
            return f"the drafter at {worker.address} has no token link{why}"
    return ""


def _make_log_dir(wanted: str) -> Path:
    if not wanted:
        return Path(tempfile.mkdtemp(prefix="minedraft-"))
    directory = Path(wanted)
    directory.mkdir(parents=True, exist_ok=True)
    return directory
