"""Views of a step made by hand, for tests of policies."""

from __future__ import annotations

from minedraft.plans import DraftResult, DraftRowResult, Score, StepTiming
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.step import Step
from minedraft.services.coordinator.core.step_view import DecodingSequence, Limits, StepView
from minedraft.types import ModelInfo, RequestId, RowId, RowParams

MS = 1_000_000
SOURCE = 1
TARGET = ModelInfo("t", 100, 1000, "f", "float32", num_blocks=100)
DRAFT = ModelInfo("d", 100, 1000, "f", "float32", drafter_kind="model")


def known_costs(*, verify_ms=(20.0, 0.5), draft_ms=(2.0, 0.1)) -> Costs:
    """Costs that were learned from steps of many sizes."""
    costs = Costs()
    costs.verifier_up(TARGET)
    costs.add_source(SOURCE, DRAFT)
    for num_tokens in range(1, 400):
        ns = round(MS * (verify_ms[0] + verify_ms[1] * num_tokens))
        costs.verify.observe(num_tokens, 1, 0, ns, overlapped=0.0)
    leg = costs.of_source(SOURCE).leg
    for num_rows in range(1, 80):
        for depth in (1, 4):
            ns = round(MS * depth * (draft_ms[0] + draft_ms[1] * num_rows))
            leg.observe((num_rows,) * depth, 2 * num_rows, 0, ns, overlapped=0.0)
    return costs


def without_scores(costs: Costs) -> Costs:
    """The same, of a drafter that was asked for scores and sent none."""
    step = Step(1, 0, {}, {RowId(1): 2}, source=SOURCE, score=Score.MARGIN)
    rows = (DraftRowResult(RowId(1), 5),)
    costs.drafted(DraftResult(1, 0, 2, 1, StepTiming(total_ns=MS), epoch=SOURCE, rows=rows), step)
    return costs


def member(number: int, *, rate: float | None = None, temperature: float = 0.0) -> Request:
    """A request that decodes, some of whose drafts were verified."""
    request = Request(
        RequestId(f"r{number}"), (1, 2, 3), RowParams(temperature=temperature), 50,
        row_id=RowId(number),
    )  # fmt: skip
    if rate is not None:
        for _ in range(100):
            request.acceptance.observe(round(1000 * rate), round(1000 * (1 - rate)))
    return request


def view_of(
    num_rows: int,
    *,
    k: int = 8,
    costs: Costs | None = None,
    rates=None,
    batch: int = 0,
    num_batches: int = 1,
) -> StepView:
    """A batch of sequences that decode and may draft `k` tokens each."""
    estimator = Estimator()
    estimator.verifier_up(TARGET)
    estimator.add_source(SOURCE, DRAFT)
    rates = rates or [0.7] * num_rows
    return StepView(
        batch=batch,
        decoding=[DecodingSequence(50, k, 20, 64, 0.7) for _ in range(num_rows)],
        prefilling=[],
        limits=Limits(k, 64, 1000, 1000, source=SOURCE, num_batches=num_batches),
        costs=costs or Costs(),
        estimator=estimator,
        num_free_blocks=100,
        block_size=16,
        most_draft_tokens=[k] * num_rows,
        members=[member(1 + i, rate=rate) for i, rate in enumerate(rates)],
    )
