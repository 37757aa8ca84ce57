"""Workers without models on real servers, with the product's servicers and sessions.

Their device can be made to hang, as a GPU does: the loop goes on and answers, no step ends and no
session begins.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc

from minedraft.plans import WorkerInfo
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.engine import Engine
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.services.coordinator.workers.membership import Membership
from minedraft.transport.channel import MAX_WORKER_MESSAGE_BYTES, server_options
from minedraft.transport.fence import Coordinator
from minedraft.transport.status import ErrorInterceptor
from minedraft.transport.worker_service import DrafterServicer, VerifierServicer
from minedraft.types import Mode
from tests.engine_world import make_sample, read
from tests.membership_world import FINGERPRINT, identity
from tests.worker_doubles import DrafterDouble, VerifierDouble, continuation


class Device:
    """Runs one piece of work after the other while it does not hang."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._free = asyncio.Event()
        self._free.set()
        self.is_stuck = asyncio.Event()
        """Set once work waits for a device that hangs."""

    def hang(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()
        self.is_stuck.clear()

    async def run(self, work):
        async with self._turn:
            if not self._free.is_set():
                self.is_stuck.set()
            await self._free.wait()
            return work()


class HangingVerifier:
    """A `VerifierHandler`."""

    def __init__(self) -> None:
        self.device = Device()
        self.num_sessions = 0
        self.num_links = 0
        self.drafters_hang = False
        self.starved: set[int] = set()
        """Batches whose steps it never begins in this session, while it runs those of others."""
        self.never = asyncio.Event()
        self._double = VerifierDouble(num_blocks=60)
        model = replace(self._double.info, tokenizer_fingerprint=FINGERPRINT)
        self._info = WorkerInfo(identity(), model, ("grpc",), "coupled")

    def info(self):
        return self._info

    async def form_link(self, spec) -> str:
        self.num_links += 1
        return "a link"

    async def begin_session(self) -> None:
        await self.device.run(lambda: None)
        self._double = VerifierDouble(num_blocks=60)
        self.starved = set()
        self.num_sessions += 1

    def drafts(self, plan):
        self._double.receive(plan)
        return self.never.wait() if plan.batch in self.starved else None

    async def start_plan(self, plan, arrived_ns, packet, ready_ns):
        return asyncio.ensure_future(self.device.run(lambda: self._step(plan)))

    def _step(self, plan):
        picked = plan if plan.rows else None
        return self._double.run_plan(picked, drafts_came=not self.drafters_hang)


class HangingDrafter:
    """A `DrafterHandler`."""

    def __init__(self) -> None:
        self.device = Device()
        self.num_sessions = 0
        self.dropped: list[int] = []
        self._doubles: dict[int, DrafterDouble] = {}
        model = replace(DrafterDouble(0).info, name="old", tokenizer_fingerprint=FINGERPRINT)
        self._info = WorkerInfo(identity(), model, ("grpc",))

    def info(self):
        return self._info

    async def form_link(self, spec) -> str:
        self._doubles[spec.epoch] = DrafterDouble(spec.epoch)
        return "a link"

    async def drop_link(self, epoch) -> None:
        self.dropped.append(epoch)

    async def load_model(self, model, tokenizer_fingerprint):
        self._info = replace(self._info, model=replace(self._info.model, name=model))
        return self._info.model

    async def begin_session(self) -> None:
        await self.device.run(lambda: None)
        self._doubles.clear()
        self.num_sessions += 1

    async def start_plan(self, plan, arrived_ns):
        step = self._doubles[plan.epoch].run
        return asyncio.ensure_future(self.device.run(lambda: step(plan)))


class HangingWorld:
    """Both workers on servers of their own, and a coordinator's membership that dials them."""

    def __init__(self, step_timeout_s: float) -> None:
        self.verifier, self.drafter = HangingVerifier(), HangingDrafter()
        self.servicers = VerifierServicer(self.verifier), DrafterServicer(self.drafter)
        self.core = Core(Mode(2, 4, 3))
        self.engine = Engine(self.core, Timeline())
        self._step_timeout_s = step_timeout_s
        self.membership: Membership | None = None

    @asynccontextmanager
    async def running(self, *interceptors, is_up=True):
        """Run everything.

        Args:
            interceptors: Of both servers.
            is_up: Wait for both to be there and linked.
        """
        servers, addresses = [], []
        for servicer in self.servicers:
            server = grpc.aio.server(
                options=server_options(MAX_WORKER_MESSAGE_BYTES),
                interceptors=[*interceptors, ErrorInterceptor()],
            )
            servicer.register(server)
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
            servers.append(server)
        config = CoordinatorConfig(
            verifier=addresses[0],
            drafters=(addresses[1],),
            link="grpc",
            reconnect_s=0.01,
            step_timeout_s=self._step_timeout_s,
        )
        self.membership = Membership(
            config, self.engine, FINGERPRINT, coordinator=Coordinator("c1")
        )
        running = asyncio.create_task(self.membership.run())
        try:
            if is_up:
                await self.until(lambda: self.core.sources.newest > 0)
            yield self
        finally:
            running.cancel()
            await asyncio.wait((running,))
            for server in servers:
                await server.stop(0)
            assert running.cancelled(), running.exception()

    def member(self, role: str):
        return self.membership.verifier if role == "verifier" else self.membership.drafters[0]

    async def finish(self, request_id: str):
        """A request that everybody works at, to its end."""
        sample = make_sample(request_id, max_tokens=9)
        self.engine.submit([sample])
        tokens, _ = await read(sample.stream)
        assert tokens[0] == continuation((1, 2, 3), 9)
        return sample.request

    async def until(self, holds) -> None:
        """Look now and then; the test's own timeout bounds it."""
        while not holds():  # noqa: ASYNC110 the event is gRPC's
            await asyncio.sleep(0.002)
