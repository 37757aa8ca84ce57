from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.services.coordinator.core.scheduler import Limits, num_draft_tokens, schedule
from minedraft.types import RequestId, RowId, RowParams, Speculation

LIMITS = Limits(num_draft_tokens=4, prefill_budget_tokens=8, max_model_len=100, drafter_max_len=100)


def new(index: int, num_prompt: int = 3, max_tokens: int = 50, **speculation) -> Request:
    """An admitted request whose prompt is still to be fed."""
    request = Request(
        RequestId(f"r{index}"),
        tuple(range(1, num_prompt + 1)),
        RowParams(),
        max_tokens,
        arrival=index,
        speculation=Speculation(**speculation),
    )
    request.advance(Event.ADMIT)
    request.row_id = RowId(index + 1)
    return request


def ready(index: int, num_prompt: int = 3, output=(9,), **kwargs) -> Request:
    """A request that both workers know up to its last token but one."""
    request = new(index, num_prompt, **kwargs)
    request.commit(output)
    request.verifier_len = request.num_tokens - 1
    request.drafter_lens = {0: request.num_tokens - 1}
    return request


def everyone(request: Request, num_positions: int) -> bool:
    have = len(request.block_ids)
    request.block_ids += range(have, -(-num_positions // 4))
    return True


def test_a_decoding_row_feeds_its_last_token_and_its_drafts():
    request = ready(0)
    step = schedule([request], LIMITS, everyone)
    (row,) = step.verify_rows
    assert (row.base_len, row.num_computed, row.num_feed, row.num_draft_tokens) == (4, 3, 1, 4)
    assert row.new_token_ids == (9,)
    assert (row.block_offset, row.new_block_ids) == (0, (0, 1))
    assert step.verify_opens == []
    (draft,) = step.draft_rows
    assert (draft.row_id, draft.base_len, draft.num_draft_tokens) == (1, 4, 4)
    assert draft.new_token_ids == (9,)
    assert request.phase is Phase.DRAFTING


def test_without_drafts_a_row_is_verifying_at_once_and_the_drafter_hears_nothing():
    request = ready(0)
    step = schedule([request], replace(LIMITS, num_draft_tokens=0), everyone)
    assert step.draft_rows == step.draft_opens == []
    assert step.verify_rows[0].num_draft_tokens == 0
    assert request.phase is Phase.VERIFYING
    assert request.drafter_lens == {0: 3}  # it will be told of all it missed when k is up again


def test_a_drafter_that_missed_steps_gets_all_their_tokens():
    request = ready(0, output=(9, 8, 7, 6))
    request.drafter_lens = {0: 4}
    step = schedule([request], LIMITS, everyone)
    assert step.draft_rows[0].new_token_ids == (8, 7, 6)
    assert step.draft_opens == []


def test_a_drafter_that_does_not_know_the_row_gets_all_of_it():
    request = ready(0, output=(9, 8))
    request.drafter_lens = {}
    step = schedule([request], LIMITS, everyone)
    assert step.draft_opens[0].prompt_token_ids == (1, 2, 3)
    assert step.draft_opens[0].output_token_ids == (9, 8)
    assert step.draft_rows[0].new_token_ids == ()


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
    request = ready(
        0,
        num_prompt,
        output=tuple(range(num_output)),
        max_tokens=max_tokens,
        num_draft_tokens=wanted,
    )
    assert num_draft_tokens(request, replace(LIMITS, **limits)) == want


@pytest.mark.parametrize("num_left", [1, 2, 3, 8, 9])
def test_a_step_emits_at_most_what_is_left(num_left):
    request = ready(0, output=(1,), max_tokens=1 + num_left)
    assert num_draft_tokens(request, replace(LIMITS, num_draft_tokens=7)) == min(7, num_left - 1)


def test_a_prompt_is_fed_in_chunks_of_the_budget():
    request = new(0, num_prompt=20)
    fed = []
    for _ in range(3):
        (row,) = schedule([request], LIMITS, everyone).verify_rows
        fed.append((row.num_computed, row.num_feed, row.num_draft_tokens, row.base_len))
    assert fed == [(0, 8, 0, 20), (8, 8, 0, 20), (16, 4, 0, 20)]


def test_blocks_come_with_the_chunk_that_needs_them():
    request = new(0, num_prompt=20)
    rows = [schedule([request], LIMITS, everyone).verify_rows[0] for _ in range(3)]
    assert [(row.block_offset, row.new_block_ids) for row in rows] == [
        (0, (0, 1)),
        (2, (2, 3)),
        (4, (4,)),
    ]


def test_both_workers_learn_of_a_row_with_its_first_chunk_only():
    request = new(0, num_prompt=20)
    first = schedule([request], LIMITS, everyone)
    second = schedule([request], LIMITS, everyone)
    assert [o.row_id for o in first.verify_opens] == [o.row_id for o in first.draft_opens] == [1]
    assert first.draft_rows[0].num_draft_tokens == 0
    assert second.verify_opens == second.draft_opens == second.draft_rows == []


@pytest.mark.parametrize(
    ("limits", "speculation"),
    [
        ({}, {"num_draft_tokens": 0}),
        ({"num_draft_tokens": 0}, {}),
        ({"drafter_max_len": 0}, {}),
        ({"drafter_max_len": 3}, {}),
    ],
)
def test_a_row_that_cannot_be_drafted_for_is_not_prefilled_at_the_drafter(limits, speculation):
    step = schedule([new(0, **speculation)], replace(LIMITS, **limits), everyone)
    assert step.draft_opens == step.draft_rows == []
    assert len(step.verify_rows) == 1


def test_the_budget_is_shared_oldest_first_and_used_up():
    members = [new(0, 3), new(1, 10), new(2, 4)]
    step = schedule(members, LIMITS, everyone)
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(1, 3), (2, 5)]
    assert step.requests == members[:2]


def test_decoding_rows_come_first_and_take_nothing_from_the_budget():
    members = [new(0, 10), ready(1), ready(2)]
    step = schedule(members, LIMITS, everyone)
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(2, 1), (3, 1), (1, 8)]


def test_a_preempted_request_feeds_prompt_and_output_again():
    request = new(0, 3)
    request.output_token_ids = [9, 8, 7, 6, 5, 4, 3]
    first = schedule([request], LIMITS, everyone)
    second = schedule([request], LIMITS, everyone)
    assert first.verify_opens[0].output_token_ids == (9, 8, 7, 6, 5, 4, 3)
    fed = [(s.verify_rows[0].num_computed, s.verify_rows[0].num_feed) for s in (first, second)]
    assert fed == [(0, 8), (8, 2)]
    assert second.verify_rows[0].base_len == 10


def test_who_gets_no_blocks_sits_the_step_out_unchanged():
    members = [ready(0), ready(1), new(2), new(3)]
    step = schedule(members, LIMITS, lambda r, n: r.arrival % 2 == 0 and everyone(r, n))
    assert [row.row_id for row in step.verify_rows] == [1, 3]
    assert members[1].phase is Phase.READY
    assert members[1].verifier_len == members[1].drafter_lens[0] == 3
    assert members[3].num_computed == 0


def test_the_chunk_of_one_that_sits_out_goes_to_the_next():
    members = [new(0, 8), new(1, 8)]
    step = schedule(members, LIMITS, lambda r, n: r.arrival == 1 and everyone(r, n))
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(2, 8)]


@pytest.mark.parametrize("make", [new, ready])
def test_one_preempted_for_an_older_one_is_not_in_the_step(make):
    older, newer = make(0), make(1)

    def allocate(request, num_positions):
        if request is older:
            newer.reset_worker_state()
            newer.advance(Event.PREEMPT)
        return everyone(request, num_positions)

    step = schedule([older, newer], LIMITS, allocate)
    assert step.requests == [older]
    assert newer.phase is Phase.WAITING


def test_nobody_to_move_is_an_empty_step():
    step = schedule([], LIMITS, everyone)
    assert (step.verify_rows, step.draft_rows, step.requests) == ([], [], [])
