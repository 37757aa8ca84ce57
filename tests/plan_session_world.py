"""Sessions of a worker without a device: plans are strings, and the test says how each ends."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from minedraft.errors import ProtocolError
from minedraft.transport.fence import Coordinator
from minedraft.transport.plan_session import PlanSessions
from minedraft.transport.status import _leaf


class Context:
    """What a session needs of a gRPC context."""

    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator
        self.written: list[str] = []
        self.has_begun = False
        self.reads = asyncio.Event()
        self.reads.set()

    def peer(self) -> str:
        return "ipv4:test"

    def invocation_metadata(self):
        return Coordinator(self.coordinator, "here").metadata if self.coordinator else ()

    async def send_initial_metadata(self, metadata) -> None:
        self.has_begun = True

    async def write(self, message) -> None:
        await self.reads.wait()
        self.written.append(message)


class Worker:
    """Plans are strings; a digit at their end is their lane. Those with a gate wait for it."""

    def __init__(self, **more) -> None:
        self.began = 0
        self.started: list[str] = []
        self.running: dict[str, asyncio.Future[str | None]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.sessions: PlanSessions[str, str, str] = PlanSessions(
            decode=self.decode,
            encode=lambda answer: f"<{answer}>",
            begin=self.begin,
            start=self.start,
            lane=lambda plan: plan[-1] if plan[-1].isdigit() else None,
            inputs=self.inputs,
            **more,
        )

    def decode(self, message: str) -> str:
        if message == "garbage":
            raise ProtocolError("garbage")
        return message

    async def begin(self) -> None:
        self.began += 1

    def inputs(self, plan: str):
        return self.wait(plan) if plan in self.gates else None

    async def wait(self, plan: str) -> str:
        await self.gates[plan].wait()
        return f"drafts of {plan}"

    async def start(self, arrived) -> asyncio.Future[str | None]:
        plan = arrived.plan
        assert arrived.ready_ns >= arrived.arrived_ns > 0
        assert arrived.inputs == (f"drafts of {plan}" if plan in self.gates else None)
        if plan == "unwelcome":
            raise ProtocolError("unwelcome")
        self.started.append(plan)
        self.running[plan] = asyncio.get_running_loop().create_future()
        return self.running[plan]


class Session:
    """One Session RPC."""

    def __init__(self, worker: Worker, coordinator: str = "a") -> None:
        self.context = Context(coordinator)
        self._requests: asyncio.Queue[str | None] = asyncio.Queue()
        self.task = asyncio.create_task(worker.sessions.serve(self._stream(), self.context))

    async def _stream(self):
        while (request := await self._requests.get()) is not None:
            yield request

    def send(self, *plans: str) -> None:
        for plan in plans:
            self._requests.put_nowait(plan)

    def leave(self) -> None:
        self._requests.put_nowait(None)

    async def error(self) -> BaseException:
        """What ended it, as the caller is told."""
        with pytest.raises(BaseExceptionGroup) as caught:
            await self.task
        return _leaf(caught.value)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def session_of(worker: Worker):
    """A session of coordinator "a" that has begun; it is over afterwards."""
    session = Session(worker)
    await settled()
    yield session
    session.task.cancel()
    await asyncio.wait((session.task,))
