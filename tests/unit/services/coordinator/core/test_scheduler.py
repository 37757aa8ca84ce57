from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.policy_options import PolicyOptions
from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.costs import Costs
from minedraft.services.coordinator.core.decider import Decider
from minedraft.services.coordinator.core.decision import Decision
from minedraft.services.coordinator.core.estimator import Estimator
from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.services.coordinator.core.scheduler import Scheduler
from minedraft.services.coordinator.core.step import Step
from minedraft.services.coordinator.core.step_view import Limits
from minedraft.types import RequestId, RowId, RowParams, Speculation

LIMITS = Limits(num_draft_tokens=4, prefill_budget_tokens=8, max_model_len=100, drafter_max_len=100)

LONG = replace(LIMITS, max_model_len=500, drafter_max_len=500)


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


class Pool:
    """Blocks for everybody but those who arrived as `blocked` says; `room` is left for drafts."""

    def __init__(self, *blocked: int, room: int = 100) -> None:
        self.blocks = PrefixCache(1000, 4)
        self.blocked, self.room = blocked, room
        self.in_flight = {}
        self.asked: list[tuple[int, int]] = []

    def allocate(self, request: Request, num_positions: int) -> bool:
        self.asked.append((request.arrival, num_positions))
        if request.arrival in self.blocked:
            return False
        have = len(request.block_ids)
        request.block_ids += range(have, -(-num_positions // 4))
        return True

    def allocate_drafts(self, request: Request, k: int) -> int:
        fits = min(k, self.room)
        have = len(request.block_ids)
        request.block_ids += range(have, -(-(request.num_tokens + fits) // 4))
        return fits


class Script:
    """A policy that decides what the test says, and keeps what it was shown."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)
        self.views = []

    def choose(self, view):
        list(view.decoding)  # its numbers are of the moment of the first look
        self.views.append(view)
        return self.decisions.pop(0)


def schedule(members, limits=LIMITS, pool=None, policy=None):
    decider = Decider("fixed", PolicyOptions())
    if policy is not None:
        decider._policy = policy
    return Scheduler(decider, pool or Pool(), Costs(), Estimator()).schedule(0, members, limits)


def test_a_decoding_row_feeds_its_last_token_and_its_drafts():
    request = ready(0)
    step = schedule([request])
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
    step = schedule([request], replace(LIMITS, num_draft_tokens=0))
    assert step.draft_rows == step.draft_opens == []
    assert step.verify_rows[0].num_draft_tokens == 0
    assert request.phase is Phase.VERIFYING
    assert request.drafter_lens == {0: 3}  # it will be told of all it missed when k is up again


def test_a_drafter_that_missed_steps_gets_all_their_tokens():
    request = ready(0, output=(9, 8, 7, 6))
    request.drafter_lens = {0: 4}
    step = schedule([request])
    assert step.draft_rows[0].new_token_ids == (8, 7, 6)
    assert step.draft_opens == []


def test_a_drafter_that_does_not_know_the_row_gets_all_of_it():
    request = ready(0, output=(9, 8))
    request.drafter_lens = {}
    step = schedule([request])
    assert step.draft_opens[0].prompt_token_ids == (1, 2, 3)
    assert step.draft_opens[0].output_token_ids == (9, 8)
    assert step.draft_rows[0].new_token_ids == ()


def test_a_row_whose_drafter_is_behind_has_no_drafts_and_the_drafter_is_fed():
    request, other = ready(0), ready(1)
    request.behind = {0: False}
    step = schedule([request, other])
    assert [row.num_draft_tokens for row in step.verify_rows] == [0, 4]
    assert [(row.row_id, row.num_draft_tokens) for row in step.draft_rows] == [(2, 4), (1, 0)]
    assert (step.num_behind, request.phase) == (1, Phase.VERIFYING)
    request.commit((8,))
    step = schedule([request])
    assert (step.draft_rows, step.num_behind) == ([], 1), "one plan at a time feeds it"


def test_a_drafter_that_is_behind_with_a_prompt_is_fed_beside_the_verifier():
    request = new(0, num_prompt=20)
    assert len(schedule([request]).draft_rows) == 1
    assert schedule([request]).draft_rows == [], "it has said nothing"
    request.behind = {0: False}
    assert len(schedule([request]).draft_rows) == 1
    assert request.behind == {0: True}


def test_a_row_beyond_the_drafters_context_is_not_fed():
    request = ready(0)
    request.behind = {0: False}
    step = schedule([request], replace(LIMITS, drafter_max_len=4))
    assert (step.draft_rows, step.num_behind) == ([], 0)


def test_a_prompt_is_fed_in_chunks_of_the_budget():
    request = new(0, num_prompt=20)
    fed = []
    for _ in range(3):
        (row,) = schedule([request]).verify_rows
        fed.append((row.num_computed, row.num_feed, row.num_draft_tokens, row.base_len))
    assert fed == [(0, 8, 0, 20), (8, 8, 0, 20), (16, 4, 0, 20)]


def test_blocks_come_with_the_chunk_that_needs_them():
    request = new(0, num_prompt=20)
    rows = [schedule([request]).verify_rows[0] for _ in range(3)]
    assert [(row.block_offset, row.new_block_ids) for row in rows] == [
        (0, (0, 1)),
        (2, (2, 3)),
        (4, (4,)),
    ]


def test_both_workers_learn_of_a_row_with_its_first_chunk_only():
    request = new(0, num_prompt=20)
    first = schedule([request])
    second = schedule([request])
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
    step = schedule([new(0, **speculation)], replace(LIMITS, **limits))
    assert step.draft_opens == step.draft_rows == []
    assert len(step.verify_rows) == 1


def test_the_budget_is_shared_oldest_first_and_used_up():
    members = [new(0, 3), new(1, 10), new(2, 4)]
    step = schedule(members)
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(1, 3), (2, 5)]
    assert list(step.requests.values()) == members[:2]


def test_decoding_rows_come_first_and_take_nothing_from_the_budget():
    members = [new(0, 10), ready(1), ready(2)]
    step = schedule(members)
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(2, 1), (3, 1), (1, 8)]


def test_a_preempted_request_feeds_prompt_and_output_again():
    request = new(0, 3)
    request.go_on_from([9, 8, 7, 6, 5, 4, 3])
    first = schedule([request])
    second = schedule([request])
    assert first.verify_opens[0].output_token_ids == (9, 8, 7, 6, 5, 4, 3)
    fed = [(s.verify_rows[0].num_computed, s.verify_rows[0].num_feed) for s in (first, second)]
    assert fed == [(0, 8), (8, 2)]
    assert second.verify_rows[0].base_len == 10


def test_who_gets_no_blocks_sits_the_step_out_unchanged():
    members = [ready(0), ready(1), new(2), new(3)]
    step = schedule(members, pool=Pool(1, 3))
    assert [row.row_id for row in step.verify_rows] == [1, 3]
    assert members[1].phase is Phase.READY
    assert members[1].verifier_len == members[1].drafter_lens[0] == 3
    assert members[3].num_computed == 0


def test_the_chunk_of_one_that_sits_out_goes_to_the_next():
    members = [new(0, 8), new(1, 8)]
    step = schedule(members, pool=Pool(0))
    assert [(row.row_id, row.num_feed) for row in step.verify_rows] == [(2, 8)]


@pytest.mark.parametrize("make", [new, ready])
def test_one_preempted_for_an_older_one_is_not_in_the_step(make):
    older, newer = make(0), make(1)

    class Preempting(Pool):
        def allocate(self, request, num_positions):
            if request is older:
                newer.reset_worker_state()
                newer.advance(Event.PREEMPT)
            return super().allocate(request, num_positions)

    step = schedule([older, newer], pool=Preempting())
    assert list(step.requests.values()) == [older]
    assert newer.phase is Phase.WAITING


def test_blocks_of_drafts_are_asked_for_when_all_committed_tokens_have_theirs():
    asked = []

    class Asked(Pool):
        def allocate(self, request, num_positions):
            asked.append((request.arrival, num_positions))
            return super().allocate(request, num_positions)

        def allocate_drafts(self, request, k):
            asked.append((request.arrival, "drafts", k))
            return super().allocate_drafts(request, k)

    schedule([ready(0), new(1, 5), ready(2)], pool=Asked())
    assert asked == [(0, 4), (2, 4), (1, 5), (0, "drafts", 4), (2, "drafts", 4)]


@pytest.mark.parametrize("room", [0, 1, 3])
def test_k_shrinks_to_what_fits_and_both_workers_hear_the_same(room):
    request = ready(0)
    step = schedule([request], pool=Pool(room=room))
    assert [row.num_draft_tokens for row in step.verify_rows] == [room]
    assert [row.num_draft_tokens for row in step.draft_rows] == ([room] if room else [])
    assert request.phase is (Phase.DRAFTING if room else Phase.VERIFYING)


def test_the_policy_decides_and_sees_all_members_first():
    members = [ready(0), new(1, 10), ready(2)]
    policy = Script(Decision([1, 3], [2], 8))
    step = schedule(members, pool=Pool(), policy=policy)
    assert [(r.row_id, r.num_feed, r.num_draft_tokens) for r in step.verify_rows] == [
        (1, 1, 1),
        (3, 1, 3),
        (2, 2, 0),
    ]
    (view,) = policy.views
    assert [member.num_committed_tokens for member in view.decoding] == [4, 4]
    assert [member.num_held_positions for member in view.decoding] == [0, 0], "nothing allocated"
    assert [member.num_missing_tokens for member in view.prefilling] == [10]
    assert (view.batch, view.num_free_blocks, view.block_size) == (0, 1000, 4)
    assert view.limits == LIMITS


def test_a_policy_that_asks_for_too_much_gets_what_there_is_room_for():
    members = [ready(0, max_tokens=4), new(1, 3), new(2, 30)]
    step = schedule(members, policy=Script(Decision([99], [99, 99], 99)))
    assert [(r.row_id, r.num_feed, r.num_draft_tokens) for r in step.verify_rows] == [
        (1, 1, 2),
        (2, 3, 0),
        (3, 5, 0),
    ]


def test_a_decision_for_other_members_is_refused():
    with pytest.raises(ValueError, match="zip"):
        schedule([ready(0), ready(1)], policy=Script(Decision([1], [], 8)))


def test_nobody_to_move_is_an_empty_step():
    step = schedule([])
    assert (step.verify_rows, step.draft_rows, step.requests) == ([], [], {})


def test_prompts_beside_sequences_that_decode_are_fed_within_the_stall(monkeypatch):
    monkeypatch.setattr(Costs, "verify_ns", lambda *_args, **_options: None)
    limits = replace(LONG, prefill_budget_tokens=500)
    prompt = new(1, num_prompt=200)
    step = schedule([ready(0), prompt], limits)
    assert [row.num_feed for row in step.verify_rows] == [1, 64], "nothing is known: a modest chunk"
    assert step.max_catch_up_tokens == 64 + 1, "and the one new token of the row that drafts"
    alone = schedule([new(2, num_prompt=200)], limits)
    assert [row.num_feed for row in alone.verify_rows] == [200]
    assert alone.max_catch_up_tokens == 0, "the drafter's own bound: nobody waits"


def test_a_step_in_flight_waits_for_prompts_of_another_batch():
    pool, other = Pool(), ready(5)
    other.advance(Event.DRAFT)
    pool.in_flight = {1: Step(3, 1, {other.row_id: other}, {other.row_id: 4}, source=0)}
    limits = replace(LONG, prefill_budget_tokens=500)
    step = schedule([new(1, num_prompt=200)], limits, pool=pool)
    assert [row.num_feed for row in step.verify_rows] == [64]


def test_a_drafter_that_only_follows_is_not_bounded():
    assert schedule([ready(0)]).max_catch_up_tokens == 0


# -- drafts of the verifier's own -----------------------------------------------------------

OWN = replace(LIMITS, num_draft_tokens=0, num_ngram_tokens=4)


def own_drafts(members, limits, **pool) -> dict[int, int]:
    """By arrival: the most drafts of the verifier's own."""
    made = schedule(members, limits, Pool(**pool))
    assert made.num_ngram_tokens == {
        row.row_id: row.num_ngram_tokens for row in made.verify_rows if row.num_ngram_tokens
    }
    return {row.row_id - 1: row.num_ngram_tokens for row in made.verify_rows}


def test_without_a_drafter_the_verifier_may_draft():
    assert own_drafts([ready(0), ready(1)], OWN) == {0: 4, 1: 4}


def test_a_caller_that_wants_fewer_or_none_gets_them():
    members = [ready(0, num_draft_tokens=0), ready(1, num_draft_tokens=2)]
    assert own_drafts(members, OWN) == {0: 0, 1: 2}


def test_drafts_of_its_own_take_free_blocks_only_and_end_with_the_output():
    assert own_drafts([ready(0)], OWN, room=1) == {0: 1}
    assert own_drafts([ready(0, max_tokens=3)], OWN) == {0: 1}


def test_rows_with_a_k_may_have_as_many_when_theirs_do_not_come():
    limits = replace(LIMITS, source=1, num_ngram_tokens=4)
    behind = ready(1)
    behind.behind = {1: True}
    members = [ready(0, num_draft_tokens=3), behind]
    for member in members:
        member.drafter_lens = {1: member.num_tokens - 1}
    assert own_drafts(members, limits) == {0: 3, 1: 4}


def test_a_policy_that_drafts_nothing_is_not_overruled():
    limits = replace(LIMITS, source=1, num_ngram_tokens=4)
    made = schedule([ready(0)], limits, policy=Script(Decision([0], [], 0)))
    assert made.num_ngram_tokens == {}


def test_a_chunk_of_a_prompt_has_none():
    assert own_drafts([new(0)], OWN) == {0: 0}
