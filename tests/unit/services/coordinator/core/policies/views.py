"""Views of a step made by hand, for tests of policies."""

from __future__ import annotations

from minedraft.services.coordinator.core.answers import Answer
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.step_view import DecodingSequence, Limits, StepView
from minedraft.types import ModelInfo

MS = 1_000_000
SOURCE = 1


def known_costs(*, verify_ms=(20.0, 0.5), draft_ms=(2.0, 0.1)) -> Costs:
    """Costs that were learned from steps of many sizes."""
    costs = Costs()
    costs.verifier_up(ModelInfo("t", 100, 1000, "f", "float32", num_blocks=100))
    costs.add_source(SOURCE, ModelInfo("d", 100, 1000, "f", "float32", drafter_kind="model"))
    for num_tokens in range(1, 400):
        ns = round(MS * (verify_ms[0] + verify_ms[1] * num_tokens))
        costs.verify.observe(num_tokens, 1, 0, ns, overlapped=0.0)
    leg = costs.of_source(SOURCE).leg
    for num_rows in range(1, 80):
        for depth in (1, 4):
            passes = draft_ms[0] + draft_ms[1] * num_rows
            ns = round(MS * depth * passes)
            leg.observe((num_rows,) * depth, 2 * num_rows, 0, ns, overlapped=0.0)
    return costs


def known_drafts(acceptance: float) -> Estimator:
    """What is known of drafts that many steps verified."""
    estimator = Estimator()
    estimator.add_source(SOURCE, ModelInfo("d", 100, 1000, "f", "float32", drafter_kind="model"))
    kept, refused = round(1000 * acceptance), round(1000 * (1 - acceptance))
    for _ in range(200):
        estimator.verified(SOURCE, Answer([], 1000, kept + refused, kept, refused))
    return estimator


def view_of(
    num_rows: int,
    *,
    k: int = 8,
    costs: Costs | None = None,
    batch: int = 0,
    acceptance: float = 0.7,
) -> StepView:
    """A batch of sequences that decode and may draft `k` tokens each."""
    return StepView(
        batch=batch,
        decoding=[DecodingSequence(50, k, 20, 64, 0.7) for _ in range(num_rows)],
        prefilling=[],
        limits=Limits(k, 64, 1000, 1000, source=SOURCE),
        costs=costs or Costs(),
        estimator=known_drafts(acceptance),
        num_free_blocks=100,
        block_size=16,
        most_draft_tokens=[k] * num_rows,
    )
