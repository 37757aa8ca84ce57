from __future__ import annotations

from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.policies.fixed import Fixed
from minedraft.services.coordinator.core.step_view import (
    DecodingSequence,
    Limits,
    PrefillingSequence,
    StepView,
)

LIMITS = Limits(num_draft_tokens=4, prefill_budget_tokens=8, max_model_len=100, drafter_max_len=100)


def test_everybody_drafts_what_was_asked_for_and_prompts_share_the_budget():
    view = StepView(
        batch=0,
        decoding=[DecodingSequence(10, 4, 20, 12, 0.5), DecodingSequence(30, 0, 20, 32, 0.5)],
        prefilling=[PrefillingSequence(9, 9), PrefillingSequence(7, 3)],
        limits=LIMITS,
        costs=Costs(),
        estimator=Estimator(),
        num_free_blocks=0,
        block_size=4,
        most_draft_tokens=[4, 0],
    )
    decision = Fixed().choose(view)
    assert decision.bounded_by(view).num_draft_tokens == [4, 0]
    assert decision.num_prefill_tokens == [9, 3]
    assert decision.prefill_budget_tokens == 8
