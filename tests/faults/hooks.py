"""Where a test holds the workers of this process, and makes them and the coordinator repeat things.

Gates are asked before a plan is run, so a request stays in the phase the test wants for as long as
the test wants. Nothing here sleeps.
"""

from __future__ import annotations

import asyncio

from minedraft.services.drafter import handler as drafter_handler
from minedraft.services.verifier import handler as verifier_handler
from minedraft.transport import worker_client


class Gate:
    """Open at first. Holds plans with rows once closed."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._num_free = 0
        self._holds = lambda _plan: True
        self.num_held = 0

    def close(self, *, after=0, holds=lambda _plan: True) -> None:
        """Hold every plan that `holds` says, but the first `after` of them."""
        self._opened.clear()
        self._num_free, self._holds = after, holds

    def open(self) -> None:
        self._opened.set()

    async def enter(self, plan) -> None:
        if not plan.rows or self._opened.is_set() or not self._holds(plan):
            return
        if self._num_free:
            self._num_free -= 1
            return
        self.num_held += 1
        await self._opened.wait()


def has_drafts(plan) -> bool:
    """Whether any row of a plan has k > 0."""
    return any(row.num_draft_tokens for row in plan.rows)


class Hooks:
    """Installed on the classes of both workers and of the coordinator's connections."""

    def __init__(self, monkeypatch) -> None:
        self.gates = {"verifier": Gate(), "drafter": Gate()}
        self.repeat_plans = False
        """The coordinator sends every plan twice."""
        self.repeats = set()
        """Roles that send every answer twice, and the one before it a third time."""
        for role, module in (("verifier", verifier_handler), ("drafter", drafter_handler)):
            start_plan = module.Handler.start_plan
            monkeypatch.setattr(module.Handler, "start_plan", self._worker(role, start_plan))
        for connection in (worker_client.VerifierConnection, worker_client.DrafterConnection):
            monkeypatch.setattr(connection, "send", self._sender(connection.send))

    def open_gates(self) -> None:
        for gate in self.gates.values():
            gate.open()

    def _worker(self, role, start_plan):
        last = []

        async def start(handler, plan, arrived_ns, *inputs):
            await self.gates[role].enter(plan)
            started = await start_plan(handler, plan, arrived_ns, *inputs)
            started.add_done_callback(lambda done: self._repeat(role, handler, done, last))
            return started

        return start

    def _repeat(self, role, handler, done, last) -> None:
        answer = None if done.cancelled() or done.exception() else done.result()
        if answer is None:
            return
        if role in self.repeats:
            for again in (*last[-1:], answer):
                handler.push(again)
        last.append(answer)

    def _sender(self, send):
        def twice(connection, plan):
            for _ in range(2 if self.repeat_plans else 1):
                send(connection, plan)

        return twice
