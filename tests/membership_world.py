"""A membership whose connections are doubles: the test says who is there, what they say and lose.

Engine and core are real. A double's device steps run when the test says so (`work`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Self

from minedraft.errors import PreconditionError, WorkerHeldError, WorkerUnavailableError
from minedraft.plans import PROTOCOL_VERSION, WorkerIdentity, WorkerInfo
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.engine import Engine
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.services.coordinator.workers import membership as membership_module
from minedraft.services.coordinator.workers.membership import Membership
from minedraft.types import Mode
from tests.worker_doubles import DrafterDouble, VerifierDouble

FINGERPRINT = "f"
VERIFIER, DRAFTER = "verifier:1", "drafter:1"
_numbers = count(1)


def identity() -> WorkerIdentity:
    """A new process."""
    return WorkerIdentity(f"w{next(_numbers)}", PROTOCOL_VERSION, 0, 0, "v")


async def settled() -> None:
    """Let everybody run who can."""
    for _ in range(30):
        await asyncio.sleep(0)


class WorkerDouble:
    """One worker process behind an address, one session long."""

    def __init__(self, world: MembershipWorld, address: str, info: WorkerInfo) -> None:
        self.world = world
        self.address = address
        self.info = info
        self.formed: list[int] = []
        self.form_error: Exception | None = None
        self.form_gate: asyncio.Event | None = None
        self.dropped: list[int] = []
        self.drop_gate: asyncio.Event | None = None
        self.load_error: Exception | None = None
        self.load_gate: asyncio.Event | None = None
        self.loaded: list[str] = []
        self.models = {}  # of links by epoch; `info` has that of the next one
        self.is_open = self.is_closed = False
        self.process = self
        """The double of the same process that was there first."""
        self.held_by = ""
        self.plans: deque = deque()
        self._answers: asyncio.Queue = asyncio.Queue()

    # what the test does

    def say(self, answer) -> None:
        self._answers.put_nowait(answer)

    def say_nonsense(self) -> None:
        """A verify answer that continues nothing."""
        while self.plans:
            self.world.verify_double.receive(self.plans.popleft())
        result = self.world.verify_double.run()
        self.say(replace(result, rows=(replace(result.rows[0], base_len=99),)))

    def leave(self) -> None:
        """Not there any more."""
        self.world.workers.pop(self.address, None)

    def end(self) -> None:
        """The process dies."""
        self.leave()
        self.say(WorkerUnavailableError(f"{self.address} ended the session"))

    # what the coordinator does

    async def get_info(self, timeout_s):
        return self.info

    def send(self, plan) -> None:
        self.plans.append(plan)

    async def form_link(self, spec) -> str:
        self.formed.append(spec.epoch)
        if self.form_gate is not None:
            await self.form_gate.wait()
        if self.form_error is not None:
            raise self.form_error
        if self.info.acceptance == "":
            self.world.draft_doubles[spec.epoch] = DrafterDouble(spec.epoch)
            same = [epoch for epoch, model in self.models.items() if model == self.info.model]
            for epoch in same:  # a model has one link
                del self.models[epoch]
            self.models[spec.epoch] = self.info.model
        return "a link"

    async def drop_link(self, epoch, timeout_s) -> None:
        if not self.process.is_open:
            raise PreconditionError("no session is open")
        self.dropped.append(epoch)
        if self.drop_gate is not None:
            await self.drop_gate.wait()
        dropped = self.models.pop(epoch, None)
        is_newest = epoch == 0 or dropped == self.info.model
        if self.models and is_newest:
            self.info = replace(self.info, model=self.models[max(self.models)])

    async def load_model(self, model, tokenizer_fingerprint, timeout_s):
        if self.load_gate is not None:
            await self.load_gate.wait()
        if self.load_error is not None:
            raise self.load_error
        self.loaded.append(model)
        self.info = replace(self.info, model=replace(self.info.model, name=model))
        return self.info.model

    @asynccontextmanager
    async def session(self, timeout_s):
        if self.held_by:
            raise WorkerHeldError(f"this worker belongs to {self.held_by}")
        self.is_open = True
        self.models.clear()
        if self.info.acceptance:
            self.world.verify_double = VerifierDouble(num_blocks=60)
        try:
            yield self._read()
        finally:
            self.is_open = False

    async def _read(self):
        while True:
            answer = await self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer

    async def close(self, why=None) -> None:
        self.is_closed = True
        if self.is_open:
            self.say(why or WorkerUnavailableError(f"{self.address}: the connection was closed"))


class _Absent:
    def __init__(self, address: str) -> None:
        self._address = address

    async def get_info(self, timeout_s):
        raise WorkerUnavailableError(f"{self._address} is not there")

    async def close(self, why=None) -> None:
        pass


class MembershipWorld:
    """See the module docstring. Use as an async context manager."""

    def __init__(self, monkeypatch, *, drafters=(DRAFTER, "drafter-b:1")) -> None:
        self.core = Core(Mode(2, 4, 4))
        self.engine = Engine(self.core, Timeline())
        self.workers: dict[str, WorkerDouble] = {}
        self.num_dials: Counter[str] = Counter()
        self.verify_double: VerifierDouble | None = None
        self.draft_doubles: dict[int, DrafterDouble] = {}
        config = CoordinatorConfig(verifier=VERIFIER, drafters=drafters, link="local")
        object.__setattr__(config, "reconnect_s", 0.0)  # less than may be set: no test waits
        self.membership = Membership(config, self.engine, FINGERPRINT)
        for name in ("VerifierConnection", "DrafterConnection"):
            monkeypatch.setattr(membership_module, name, self._connect)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.membership.run())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled():
            self._task.result()

    def verifier(self, *, fingerprint=FINGERPRINT, name="target", vocab_size=50) -> WorkerDouble:
        model = replace(
            VerifierDouble(num_blocks=60).info,
            name=name,
            vocab_size=vocab_size,
            tokenizer_fingerprint=fingerprint,
        )
        return self._appear(VERIFIER, WorkerInfo(identity(), model, ("local",), "coupled"))

    def drafter(self, address=DRAFTER, *, fingerprint=FINGERPRINT) -> WorkerDouble:
        model = replace(DrafterDouble(0).info, name="old", tokenizer_fingerprint=fingerprint)
        return self._appear(address, WorkerInfo(identity(), model, ("local",)))

    def alias(self, worker: WorkerDouble, address: str) -> WorkerDouble:
        """The same process under another address too."""
        alias = self._appear(address, worker.info)
        alias.process = worker.process
        return alias

    def _appear(self, address: str, info: WorkerInfo) -> WorkerDouble:
        worker = self.workers[address] = WorkerDouble(self, address, info)
        return worker

    def _connect(self, address, credentials, *, server_name="", coordinator=None):
        self.num_dials[address] += 1
        return self.workers.get(address) or _Absent(address)

    @property
    def sources(self) -> tuple[int, ...]:
        """Draft sources that are linked."""
        return tuple(source.source_id for source in self.core.sources)

    @property
    def warming(self) -> tuple[int, ...]:
        """Those of them that shall take over."""
        return tuple(source.source_id for source in self.core.sources.warming)

    def uses(self, source_id: int) -> bool:
        """Whether a step in flight waits for drafts of a source that is linked."""
        return any(self.core.uses(s) for s in self.core.sources if s.source_id == source_id)

    async def until(self, holds) -> None:
        """Give everybody turns until something holds."""
        for _ in range(2000):
            if holds():
                return
            assert not self._task.done(), self._task
            await asyncio.sleep(0)
        raise AssertionError("it never held")

    def draft(self) -> None:
        """Every drafter does what it was told."""
        for worker in list(self.workers.values()):
            while worker.plans and not worker.info.acceptance:
                plan = worker.plans.popleft()
                double = self.draft_doubles[plan.epoch]
                result = double.run(plan)
                if result is not None:
                    self.engine.on_draft_result(result)

    def verify(self, *, drafts_came: bool = True) -> None:
        """The verifier does its next step."""
        worker = self.workers[VERIFIER]
        while worker.plans:
            self.verify_double.receive(worker.plans.popleft())
        result = self.verify_double.run(drafts_came=drafts_came)
        if result is not None:
            self.engine.on_verify_result(result)

    def work(self, num_steps: int = 100) -> None:
        """Both work until nobody has anything to do."""
        for _ in range(num_steps):
            if self.core.is_idle:
                return
            self.draft()
            self.verify()
