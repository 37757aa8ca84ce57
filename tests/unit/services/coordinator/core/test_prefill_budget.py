from __future__ import annotations

import pytest

from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.prefill_budget import (
    FIRST_CHUNK_TOKENS,
    MIN_CHUNK_TOKENS,
    Load,
    PrefillBudget,
    load_of,
)
from minedraft.services.coordinator.core.request import Phase, Request
from minedraft.services.coordinator.core.step import Step
from minedraft.types import RequestId, RowId, RowParams

NOBODY = Load()
EIGHT = Load([4] * 8, 800)
"""40 tokens for the verifier, 16 for the drafter and 4 depths of 8 rows."""


class Linear(Costs):
    """So much per step, and so much per token; the drafter besides per row and further depth."""

    def __init__(self, fixed=60.0, token=1.0, draft_fixed=4.0, draft_token=1.0) -> None:
        super().__init__()
        self.fixed, self.token = fixed, token
        self.draft_fixed, self.draft_token = draft_fixed, draft_token
        self.asked: list[bool] = []

    def verify_ns(self, num_tokens, num_rows, context, *, overlapped):
        self.asked.append(overlapped)
        return self.fixed + self.token * num_tokens

    def draft_ns(self, rows_per_depth, num_catch_up_tokens, context, *, overlapped, source=0):
        self.asked.append(overlapped)
        further = sum(rows_per_depth[1:])
        return self.draft_fixed + self.draft_token * num_catch_up_tokens + further


def budget(costs=None, stall=1.5) -> PrefillBudget:
    return PrefillBudget(costs if costs is not None else Linear(), stall)


def verify(own=EIGHT, *others, costs=None, stall=1.5, source=1, most=512) -> int:
    return budget(costs, stall).verify_tokens(own, others, source=source, most=most)


def draft(own=EIGHT, *others, costs=None, stall=1.5, source=1, most=512) -> int:
    return budget(costs, stall).draft_tokens(own, others, source=source, most=most)


def about(most: int) -> list[int]:
    """What a budget of at most so much may be found to be: a sixteenth less."""
    return list(range(most - most // 16 - 1, most + 1))


def test_a_step_with_a_prompt_takes_so_many_times_one_without():
    assert verify() in about(50), "60 + 40 + 50 over 60 + 40"
    assert verify(stall=2.0) in about(100)
    assert draft() in about(22), "4 + 16 + 24 + 22 over 4 + 16 + 24"


def test_the_cap_stays():
    assert verify(most=30) == 30
    assert draft(most=10) == 10


def test_where_nobody_decodes_a_prompt_has_the_whole_budget():
    assert verify(NOBODY) == 512
    assert draft(NOBODY) == 512


def test_a_batch_that_only_prefills_may_hold_up_the_others_by_no_more():
    assert verify(NOBODY, EIGHT) in about(90), "60 + 90 over 60 + 40"
    assert verify(Load([4]), EIGHT) in about(85)
    assert verify(EIGHT, Load([4])) in about(50), "the heavier one is what a step takes"


def test_in_rotation_the_shorter_leg_may_take_as_long_as_the_longer_one():
    costs = Linear()
    assert draft(EIGHT, EIGHT, costs=costs) in about(56), "44 + 56: hidden beneath the 100"
    assert verify(EIGHT, EIGHT, costs=costs) in about(50)
    assert costs.asked
    assert all(costs.asked)
    alone = Linear()
    verify(EIGHT, costs=alone)
    assert not any(alone.asked)


def test_without_drafts_nothing_overlaps():
    plain = Load([0] * 8, 800)
    costs = Linear()
    assert verify(plain, plain, costs=costs, source=0) in about(34), "68 + 34 over 68"
    assert not any(costs.asked)


@pytest.mark.parametrize("most", [2, 512])
def test_a_prompt_gets_on_whatever_it_costs(most):
    dear = Linear(fixed=0.0, token=1e9, draft_fixed=0.0, draft_token=1e9)
    one = Load([0], 9)
    want = min(most, MIN_CHUNK_TOKENS)
    assert verify(one, costs=dear, most=most) == want
    assert draft(one, costs=dear, most=most) == want


def test_the_first_chunk_beside_others_is_modest_while_nothing_is_known():
    assert verify(costs=Costs()) == FIRST_CHUNK_TOKENS
    assert draft(costs=Costs()) == FIRST_CHUNK_TOKENS
    assert verify(costs=Costs(), most=8) == 8
    assert verify(NOBODY, costs=Costs()) == 512


def test_a_budget_is_kept_for_some_steps_of_about_the_same_load():
    costs = Linear()
    kept = budget(costs)
    first = kept.verify_tokens(EIGHT, (), source=1, most=512)
    costs.asked.clear()
    costs.token = 9.0
    others = [Load([4] * 8, 900), Load([4] * 7 + [5], 800)]
    for i in range(8):
        assert kept.verify_tokens(others[i % 2], (), source=1, most=512) == first
        kept.step += 1
    assert not costs.asked
    assert kept.verify_tokens(EIGHT, (), source=1, most=512) < first
    assert kept.draft_tokens(EIGHT, (), source=1, most=512) in about(22), "the other worker's"


def test_another_number_of_rows_is_another_budget():
    kept = budget()
    assert kept.verify_tokens(Load([4], 9), (), source=1, most=512) in about(32)
    assert kept.verify_tokens(Load([4] * 2, 9), (), source=1, most=512) in about(35)


def test_loads_of_any_size_are_kept_up_to_a_number():
    kept = budget()
    for i in range(1, 500):
        kept.verify_tokens(Load([4] * i, 9), (), source=1, most=512)
        assert len(kept._known) <= 64


def test_the_load_of_a_step_in_flight_is_without_its_prompts():
    requests = {
        RowId(i): Request(RequestId(f"r{i}"), (1, 2), RowParams(), 9, phase=phase)
        for i, phase in enumerate((Phase.DRAFTING, Phase.PREFILLING, Phase.VERIFYING))
    }
    step = Step(1, 0, requests, {RowId(0): 4, RowId(1): 0, RowId(2): 0, RowId(7): 3}, context=70)
    assert load_of(step) == Load([4, 0], 70)
    del requests[RowId(0)], requests[RowId(2)]
    assert load_of(step) == Load([], 0)
