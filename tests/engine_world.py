"""A real engine and core between workers without models, for tests of what stands around them.

Nothing runs by itself: the test says when a worker does its next step and when time passes.
"""

from __future__ import annotations

from collections import deque

from minedraft.api import Delta, Finished
from minedraft.plans import DraftPlan, StepBegun, VerifyPlan
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.engine import Engine, Sample
from minedraft.services.coordinator.streams import EventStream
from minedraft.services.coordinator.telemetry.timeline import Timeline
from minedraft.services.coordinator.text.output import OutputProcessor
from minedraft.types import Mode, RequestId, RowParams, SamplingParams, Speculation
from tests.worker_doubles import DrafterDouble, VerifierDouble


class EngineWorld:
    """See the module docstring; made inside a running event loop."""

    def __init__(
        self,
        mode: Mode = Mode(1, 4, 4),  # noqa: B008
        *,
        max_waiting: int = 8,
        step_timeout_s: float = 120.0,
    ) -> None:
        self.now_ns = 0
        self.core = Core(
            mode,
            prefill_budget_tokens=64,
            max_waiting=max_waiting,
            step_timeout_s=step_timeout_s,
        )
        self.engine = Engine(self.core, Timeline(), clock=lambda: self.now_ns)
        self.verifier: VerifierDouble | None = None
        self.drafters: dict[int, DrafterDouble] = {}
        self.sources: dict[int, DraftSource] = {}
        self.draft_plans: deque[DraftPlan] = deque()
        self.verify_plans: list[VerifyPlan] = []

    @classmethod
    def drafting(cls, mode: Mode = Mode(1, 4, 4)) -> EngineWorld:  # noqa: B008
        """One with a verifier and drafter 1."""
        world = cls(mode)
        world.verifier_up()
        world.drafter_up(1)
        return world

    def submit(self, *samples: Sample) -> None:
        """Each is a request of its own."""
        for sample in samples:
            self.engine.submit([sample])

    def step(self, count: int = 1) -> None:
        """The drafters do what they were told, then the verifier its next step."""
        for _ in range(count):
            self.draft()
            self.verify()

    def verifier_up(self, num_blocks: int = 60) -> None:
        self.verifier = VerifierDouble(num_blocks=num_blocks)
        self.engine.verifier_up(self.verifier.info, self.take_verify)

    def take_verify(self, plan: VerifyPlan) -> None:
        self.verify_plans.append(plan)
        self.verifier.receive(plan)

    def drafter_up(self, epoch: int) -> DrafterDouble:
        drafter = self._link(epoch)
        self.engine.serve(self.sources[epoch], self.draft_plans.append)
        return drafter

    def warm_up(self, epoch: int) -> DrafterDouble:
        drafter = self._link(epoch)
        self.engine.warm_up(self.sources[epoch], self.draft_plans.append)
        return drafter

    def _link(self, epoch: int) -> DrafterDouble:
        drafter = self.drafters[epoch] = DrafterDouble(epoch)
        self.sources[epoch] = DraftSource(epoch, drafter.info)
        return drafter

    def drafter_down(self, epoch: int) -> None:
        self.engine.drop(self.sources[epoch])

    def cut_over(self, old: int, new: int) -> None:
        self.engine.cut_over(self.sources[old], self.sources[new])

    def uses(self, epoch: int) -> bool:
        return self.core.uses(self.sources[epoch])

    def draft(self) -> None:
        """The drafters do what they were told, and say so."""
        while self.draft_plans:
            plan = self.draft_plans.popleft()
            result = self.drafters[plan.epoch].run(plan)
            if result is not None:
                self.engine.on_draft_result(result)

    def verify(self, accept=lambda _row_id, k: k) -> None:
        """The verifier does its next step."""
        result = self.verifier.run(accept)
        if result is not None:
            self.core.on_step_begun(StepBegun(result.step_id, result.batch))
            self.engine.on_verify_result(result)

    def run_dry(self, max_steps: int = 200) -> None:
        for _ in range(max_steps):
            if self.core.is_idle:
                return
            self.step()
        raise AssertionError("requests are live and nothing moves")


def make_sample(
    request_id: str,
    prompt: tuple[int, ...] = (1, 2, 3),
    max_tokens: int = 6,
    *,
    stream: EventStream | None = None,
    index: int = 0,
    k: int | None = None,
    stop_ids: tuple[int, ...] = (),
) -> Sample:
    """A sample without text."""
    request = Request(
        RequestId(request_id), prompt, RowParams(), max_tokens, speculation=Speculation(k)
    )
    processor = OutputProcessor(None, prompt, SamplingParams(), stop_ids, (), max_tokens)
    return Sample(request, processor, stream or EventStream(1), index)


async def read(stream: EventStream) -> tuple[dict[int, list[int]], dict[int, Finished]]:
    """Read a stream to its end: tokens and ends by sample."""
    tokens: dict[int, list[int]] = {}
    ends: dict[int, Finished] = {}
    async for event in stream:
        if isinstance(event, Delta):
            assert event.index not in ends, "output after its end"
            tokens.setdefault(event.index, []).extend(event.token_ids)
        else:
            assert event.index not in ends, "a second end"
            ends[event.index] = event
    return tokens, ends
