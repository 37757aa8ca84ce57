from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.plans import MAX_DRAFT_TOKENS
from minedraft.services.coordinator.core.request import Request
from minedraft.services.coordinator.core.step_view import (
    DecodingMembers,
    Limits,
    most_draft_tokens,
    view_decoding,
    view_prefilling,
)
from minedraft.types import RequestId, RowParams, Speculation

LIMITS = Limits(num_draft_tokens=4, prefill_budget_tokens=8, max_model_len=100, drafter_max_len=100)


def request(num_prompt: int, num_output: int, max_tokens: int = 50, wanted=None) -> Request:
    made = Request(
        RequestId("r"),
        tuple(range(num_prompt)),
        RowParams(),
        max_tokens,
        speculation=Speculation(wanted),
    )
    made.go_on_from(range(num_output))
    return made


def most_drafts(made: Request, limits: Limits = LIMITS) -> int:
    (view,) = DecodingMembers([made], limits, 4, 0.5)
    assert most_draft_tokens([made], limits) == [min(view.wanted_draft_tokens, view.headroom)]
    return min(view.wanted_draft_tokens, view.headroom)


@pytest.mark.parametrize(
    ("limits", "num_prompt", "num_output", "max_tokens", "wanted", "want"),
    [
        ({}, 3, 1, 50, None, 4),
        ({}, 3, 1, 50, 2, 2),
        ({}, 3, 1, 50, 9, 4),
        ({}, 3, 1, 50, 0, 0),
        ({"num_draft_tokens": 0}, 3, 1, 50, 3, 0),
        ({}, 3, 1, 4, None, 2),  # two drafts and the bonus token fill it
        ({}, 3, 1, 2, None, 0),
        ({}, 90, 9, 50, None, 0),  # the context has one place left
        ({}, 90, 7, 50, None, 2),
        ({"drafter_max_len": 0}, 3, 1, 50, None, 0),
        ({"drafter_max_len": 8}, 3, 1, 50, None, 4),
        ({"drafter_max_len": 7}, 3, 1, 50, None, 3),
    ],
)
def test_k_never_goes_past_an_end(limits, num_prompt, num_output, max_tokens, wanted, want):
    made = request(num_prompt, num_output, max_tokens, wanted)
    assert most_drafts(made, replace(LIMITS, **limits)) == want


@pytest.mark.parametrize("num_left", [1, 2, 3, 8, 9])
def test_a_step_emits_at_most_what_is_left(num_left):
    made = request(3, 1, max_tokens=1 + num_left)
    assert most_drafts(made, replace(LIMITS, num_draft_tokens=7)) == min(7, num_left - 1)


@pytest.mark.parametrize(("vocab_size", "want"), [(8, 4), (7, 0)])
def test_a_drafter_that_does_not_know_all_its_tokens_has_no_room(vocab_size, want):
    made = request(8, 1)
    assert most_drafts(made, replace(LIMITS, drafter_vocab_size=vocab_size)) == want


def test_a_view_says_what_is_wanted_what_fits_and_what_is_held():
    made = request(3, 1, max_tokens=3, wanted=9)
    made.block_ids = [7, 3]
    (view,) = view_decoding([made], LIMITS, 4, 0.5)
    assert view.num_committed_tokens == 4
    assert view.wanted_draft_tokens == 4, "never more than the service's k"
    assert view.headroom == 1, "a draft and the bonus token fill it"
    assert view.num_held_positions == 8
    assert view.acceptance == 0.5, "that of its draft source"


def test_a_view_says_how_many_of_its_drafts_the_target_kept_lately():
    made = request(3, 1)
    for _ in range(30):
        made.observe(4, 4)
    (view,) = view_decoding([made], LIMITS, 4, 0.5)
    assert view.acceptance > 0.9


def test_nobody_has_room_for_more_drafts_than_a_plan_carries():
    (view,) = view_decoding([request(3, 1, max_tokens=90)], LIMITS, 4, 0.5)
    assert view.headroom == MAX_DRAFT_TOKENS == 32


def test_a_view_of_one_that_prefills_says_what_is_missing():
    made = request(10, 2)
    made.num_computed = 8
    (view,) = view_prefilling([made])
    assert (view.num_committed_tokens, view.num_missing_tokens) == (12, 4)
