from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ProtocolError
from minedraft.plans import DraftPlan, DraftRowResult
from minedraft.types import RowId, RowParams
from tests.draft_world import Drafter, opened, row
from tests.fake_runner import VOCAB, continuation

# -- one step -------------------------------------------------------------------------------


def test_drafts_continue_the_committed_tokens():
    drafter = Drafter()
    result = drafter.step([row()], opens=[opened()])
    assert drafter.drafts() == continuation((1, 2, 3), 4)
    packet = drafter.packets[0]
    assert (packet.epoch, packet.step_id, packet.batch) == (7, 1, 1)
    assert packet.rows[0].base_len == 3
    assert (result.step_id, result.batch, result.epoch) == (1, 1, 7)
    assert (result.num_draft_tokens, result.num_rows, result.num_behind) == (4, 1, 0)


def test_k_tokens_take_k_forward_passes_and_the_last_draft_is_not_fed():
    drafter = Drafter()
    drafter.step([row(k=4)], opens=[opened()])
    assert [[len(r.token_ids) for r in call] for call in drafter.runner.calls] == [[3], [1]] + [
        [1]
    ] * 2


def test_after_full_acceptance_only_what_lacks_kv_is_fed():
    drafter = Drafter()
    drafter.step([row(k=4)], opens=[opened()])
    new = continuation((1, 2, 3), 5)
    drafter.runner.calls.clear()
    drafter.step([row(base_len=8, new=new, k=1)])
    assert [list(r.token_ids) for r in drafter.runner.calls[0]] == [new[3:]]
    assert drafter.drafts() == continuation((1, 2, 3, *new), 1)


def test_after_a_rejection_the_wrong_kv_is_overwritten():
    drafter = Drafter()
    drafter.step([row(k=4)], opens=[opened()])
    good = continuation((1, 2, 3), 1)
    new = [*good, (good[0] + 1) % VOCAB]
    drafter.step([row(base_len=5, new=new, k=4)])
    assert drafter.drafts() == continuation((1, 2, 3, *new), 4)


def test_rows_draft_side_by_side_each_as_long_as_it_wants():
    drafter = Drafter()
    prompts = {1: (1, 2, 3), 2: (4,), 3: (5, 6)}
    drafter.step(
        [row(1, 3, k=4), row(2, 1, k=1), row(3, 2, k=2)],
        opens=[opened(row_id, prompt) for row_id, prompt in prompts.items()],
    )
    for row_id, k in ((1, 4), (2, 1), (3, 2)):
        assert drafter.drafts(row_id) == continuation(prompts[row_id], k)
    assert [len(call) for call in drafter.runner.calls] == [3, 2, 1, 1]


def test_k_of_0_only_feeds_and_is_not_sent():
    drafter = Drafter()
    result = drafter.step([row(k=0)], opens=[opened()])
    assert drafter.packets == []
    assert (result.num_draft_tokens, result.num_rows) == (0, 0)
    assert result.rows == (DraftRowResult(RowId(1), 3),), "it has caught up"
    assert drafter.runner.calls[0][0].num_logits == 0
    drafter.step([row(k=2)])
    assert drafter.drafts() == continuation((1, 2, 3), 2)
    assert [list(r.token_ids) for r in drafter.runner.calls[1]] == [[3]]


def test_a_plan_without_rows_opens_and_closes_and_says_nothing():
    drafter = Drafter()
    assert drafter.step(opens=[opened()]) is None
    assert drafter.engine.rows.num_rows == 1
    assert drafter.step(closes=[RowId(1), RowId(99)]) is None
    assert drafter.engine.rows.num_rows == 0
    assert drafter.packets == []


def test_an_id_can_be_closed_and_opened_in_one_plan():
    drafter = Drafter()
    drafter.step([row()], opens=[opened()])
    drafter.step([row(base_len=2)], closes=[RowId(1)], opens=[opened(1, (9, 9))])
    assert drafter.drafts() == continuation((9, 9), 4)


def test_a_row_nobody_opened_is_refused():
    with pytest.raises(ProtocolError, match="row 5, which is not open"):
        Drafter().step([row(5)])


def test_a_repeated_step_gives_the_same_drafts_and_feeds_the_last_token_only():
    drafter = Drafter()
    drafter.step([row(base_len=5, new=(7, 8))], opens=[opened(output=(7,))])
    first = drafter.packets[-1]
    num_fed = drafter.runner.num_fed
    drafter.run(DraftPlan(1, 1, 7, (row(base_len=5, new=(7, 8)),)))
    assert drafter.packets[-1] == first
    assert drafter.runner.num_fed - num_fed == 4, "one committed token, three drafts"


def test_drafts_of_sampled_rows_follow_the_seed():
    params = RowParams(temperature=30.0, seed=5)  # nearly flat: another seed, other tokens
    one, same, other = Drafter(), Drafter(), Drafter()
    for drafter, seed in ((one, 5), (same, 5), (other, 6)):
        drafter.step([row(k=8)], opens=[opened(params=replace(params, seed=seed))])
    assert one.drafts() == same.drafts()
    assert one.drafts() != other.drafts()


def test_a_trial_drafts_and_sends_no_packet():
    drafter = Drafter()
    plan = DraftPlan(1, 0, 7, (row(k=4),), (opened(),), is_trial=True)
    result = drafter.run(plan)
    assert (result.num_draft_tokens, len(drafter.runner.calls)) == (4, 4)
    assert drafter.packets == []


# -- the catch-up budget --------------------------------------------------------------------


def test_a_long_prompt_is_fed_over_several_steps_and_drafted_for_at_the_end():
    drafter = Drafter(max_catch_up_tokens=4)
    prompt = tuple(range(10))
    behind = []
    for _ in range(3):
        result = drafter.step(
            [row(base_len=10, k=2)], opens=[opened(1, prompt)] if not behind else ()
        )
        behind.append((result.rows, len(drafter.packets[-1].rows[0].token_ids)))
    is_behind = (DraftRowResult(RowId(1), 10, is_behind=True),)
    assert behind == [(is_behind, 0), (is_behind, 0), ((), 2)]
    assert drafter.drafts() == continuation(prompt, 2)


@pytest.mark.parametrize(("own", "planned", "fed"), [(4, 0, 4), (4, 3, 3), (4, 9, 4)])
def test_a_plan_may_say_how_much_is_fed_and_the_drafters_setting_bounds_it(own, planned, fed):
    drafter = Drafter(max_catch_up_tokens=own)
    plan = DraftPlan(
        1, 0, 7, (row(base_len=10),), (opened(1, range(10)),), max_catch_up_tokens=planned
    )
    assert drafter.run(plan).num_behind == 1
    assert [len(r.token_ids) for r in drafter.runner.calls[0]] == [fed]


def test_one_long_prompt_does_not_stop_the_others():
    drafter = Drafter(max_catch_up_tokens=6)
    prompt = tuple(range(20))
    result = drafter.step(
        [row(1, 20, k=2), row(2, 2, k=2)], opens=[opened(1, prompt), opened(2, (1, 2))]
    )
    assert drafter.drafts(2) == continuation((1, 2), 2)
    assert drafter.drafts(1) == []
    assert (result.num_behind, result.num_rows, result.num_draft_tokens) == (1, 1, 2)
    assert sum(len(r.token_ids) for r in drafter.runner.calls[0]) == 6


# -- a model without numbers ----------------------------------------------------------------


@pytest.mark.parametrize("q_width", [0, 4])
def test_a_row_without_numbers_loses_its_drafts_and_the_others_keep_theirs(q_width):
    drafter = Drafter(poison={9}, q_width=q_width)
    result = drafter.step([row(1, 3, k=2), row(2, 3, k=2)], opens=[opened(1), opened(2, (1, 9, 2))])
    assert (drafter.drafts(1), drafter.drafts(2)) == (continuation((1, 2, 3), 2), [])
    assert (result.num_broken, result.num_rows, result.num_draft_tokens) == (1, 1, 2)
    num_used = drafter.engine.rows.num_blocks_used
    num_fed = drafter.runner.num_fed
    result = drafter.step([row(2, 4, new=(5,), k=2)])
    assert (result.num_broken, result.num_behind, drafter.drafts(2)) == (1, 0, [])
    assert drafter.runner.num_fed == num_fed, "it never has numbers again: feeding it is lost time"
    assert num_used == 1, "its blocks went back"


def test_the_chunk_that_has_no_numbers_is_the_last_one_of_its_row():
    drafter = Drafter(poison={9}, max_catch_up_tokens=4)
    prompt = (9, *range(10, 20))
    drafter.step([row(1, 11, k=2)], opens=[opened(1, prompt)])
    assert drafter.runner.num_fed == 4
    result = drafter.step([row(1, 11, k=2)])
    assert drafter.runner.num_fed == 4
    assert (result.num_broken, result.num_behind) == (1, 0)


@pytest.mark.parametrize("q_width", [0, 4])
@pytest.mark.parametrize("place", range(3))
def test_drafts_end_at_the_one_that_has_no_successor(place, q_width):
    truth = continuation((1, 2, 3), 4)
    drafter = Drafter(poison={truth[place]}, q_width=q_width)
    result = drafter.step([row(1, 3, k=4)], opens=[opened(1)])
    assert drafter.drafts(1) == truth[: place + 1]
    assert (result.num_broken, result.num_draft_tokens) == (1, place + 1)
    # It was wrong, so the row goes on.
    new = [*truth[:place], (truth[place] + 1) % VOCAB]
    result = drafter.step([row(1, 3 + len(new), new, k=1)])
    assert drafter.drafts(1) == continuation((1, 2, 3, *new), 1)
    assert result.num_broken == 0


# -- a pool that is too small ---------------------------------------------------------------


def test_a_row_there_is_no_room_for_is_not_drafted_for_until_there_is():
    drafter = Drafter(num_blocks=3, block_size=4)
    result = drafter.step(
        [row(1, 3, k=2), row(2, 9, k=2)], opens=[opened(1), opened(2, tuple(range(9)))]
    )
    assert drafter.drafts(1) == continuation((1, 2, 3), 2)
    assert drafter.drafts(2) == []
    assert result.num_behind == 0, "more steps would not help it: a swap must not wait for that"
    drafter.step([row(2, 9, k=2)], closes=[RowId(1)])
    assert drafter.drafts(2) == continuation(range(9), 2)


def test_a_row_that_gave_its_kv_up_drafts_rightly_once_there_is_room():
    drafter = Drafter(num_blocks=4, block_size=4)
    prompts = {1: (1, 2, 3, 4, 5, 6), 2: (7, 8, 9, 10, 11, 12)}
    drafter.step(
        [row(i, 6, k=2) for i in prompts], opens=[opened(i, p) for i, p in prompts.items()]
    )
    new = {i: continuation(p, 3) for i, p in prompts.items()}
    result = drafter.step([row(i, 9, new[i], k=1) for i in prompts])
    assert [len(r.token_ids) for r in drafter.packets[-1].rows].count(0) == 1
    assert result.num_rows == 1
    loser = next(r.row_id for r in drafter.packets[-1].rows if not r.token_ids)
    drafter.step([row(loser, 9, k=1)], closes=[RowId(3 - loser)])
    assert drafter.drafts(loser) == continuation((*prompts[loser], *new[loser]), 1)


def test_without_q_only_ids_travel():
    drafter = Drafter()
    drafter.step([row()], opens=[opened()])
    assert drafter.packets[0].rows[0].q == ()


def test_of_rows_that_begin_alike_one_feeds_and_the_others_find_it_in_their_next_step():
    drafter = Drafter()
    prompt = tuple(range(1, 14))
    ids = range(1, 5)
    opens = [opened(row_id, prompt) for row_id in ids]
    first = drafter.step([row(row_id, 13, k=0) for row_id in ids], opens=opens)
    assert (drafter.runner.num_fed, first.num_behind) == (13, 3)
    second = drafter.step([row(row_id, 14, (7,), k=2) for row_id in ids])
    assert second.num_behind == 0
    assert [drafter.drafts(row_id) for row_id in ids] == [continuation([*prompt, 7], 2)] * 4
    assert drafter.runner.num_fed == 13 + 1 + 3 * 2 + 4, "twelve of the tokens were found"


def test_rows_that_are_drafted_for_wait_for_no_other():
    drafter = Drafter()
    prompt = tuple(range(1, 14))
    drafter.step(
        [row(row_id, 13, k=2) for row_id in (1, 2)],
        opens=[opened(row_id, prompt) for row_id in (1, 2)],
    )
    assert drafter.drafts(1) == drafter.drafts(2) == continuation(prompt, 2)


def test_a_row_that_stays_behind_for_lack_of_room_holds_up_no_other():
    drafter = Drafter(num_blocks=4)
    prompt = tuple(range(1, 18))  # more than there is
    drafter.step([row(1, 17, k=0)], opens=[opened(1, prompt)])
    drafter.step(
        [row(1, 17, k=0), row(2, 9, k=0)], opens=[opened(2, prompt[:9]), opened(3, (1, 2))]
    )
    drafter.step([row(2, 10, (3,), k=2)])
    assert drafter.drafts(2) == continuation([*prompt[:9], 3], 2)


def test_without_the_prefix_cache_every_row_is_fed():
    drafter = Drafter(prefix_cache=False)
    prompt = tuple(range(1, 14))
    for row_id in (1, 2):
        drafter.step([row(row_id, 13, k=0)], opens=[opened(row_id, prompt)])
    assert drafter.runner.num_fed == 26


def test_a_measurement_finds_nothing_and_leaves_nothing_to_find():
    drafter = Drafter()
    prompt = tuple(range(1, 14))
    for row_id, is_trial in ((1, False), (2, True)):
        drafter.num_steps += 1
        rows, opens = (row(row_id, 13, k=0),), (opened(row_id, prompt),)
        drafter.run(DraftPlan(drafter.num_steps, 1, 7, rows, opens, is_trial=is_trial))
    assert drafter.runner.num_fed == 26
    drafter.step(closes=[RowId(1), RowId(2)])
    assert drafter.engine.rows.num_blocks_cached == 3, "of the first one"
