from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ProtocolError
from minedraft.plans import VerifyPlan
from minedraft.selection import Selection
from minedraft.types import Acceptance, RowError, RowId, RowParams
from tests.fake_runner import VOCAB, continuation
from tests.verify_world import GREEDY, PROMPT, Verifier, decode, opened, prefilled, row

# -- one step -------------------------------------------------------------------------------


def test_a_prompt_gives_the_first_token():
    result = Verifier().step([row(blocks=(5,))], opens=[opened()])
    assert (result.step_id, result.batch) == (1, 1)
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 1)
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (0, 0)


def test_a_wide_plan_alone_may_use_spare_threads():
    verifier = Verifier()
    truth = continuation(PROMPT, 3)
    plans = [
        VerifyPlan(1, 0, 0, rows=(row(blocks=(0, 1)),), opens=(opened(),), is_wide=True),
        VerifyPlan(2, 0, 0, rows=(row(1, 4, truth[:1], done=3, feed=1, offset=2),)),
        VerifyPlan(3, 0, 0, rows=(row(1, 5, truth[1:2], done=4, feed=1, offset=2),), is_wide=True),
    ]
    emitted = [token for plan in plans for token in verifier.run(plan).rows[0].token_ids]
    assert emitted == truth
    assert verifier.runner.widths == [True, False, True]


@pytest.mark.parametrize("num_right", range(5))
def test_drafts_stand_up_to_the_first_wrong_one_and_the_target_goes_on(num_right):
    truth = continuation(PROMPT, 6)
    drafts = truth[1:5]
    if num_right < 4:
        drafts[num_right] = (drafts[num_right] + 1) % VOCAB
    result, _ = decode(drafts)
    answer = result.rows[0]
    assert list(answer.token_ids) == truth[1 : num_right + 2]
    assert (answer.num_draft_tokens, answer.num_accepted_tokens) == (4, num_right)
    assert answer.base_len == 4


@pytest.mark.parametrize("num_right", range(5))
def test_kv_of_wrong_drafts_does_no_harm_to_the_next_step(num_right):
    truth = continuation(PROMPT, 12)
    drafts = [*truth[1 : 1 + num_right], *[(t + 1) % VOCAB for t in truth[1 + num_right : 5]]]
    _, verifier = decode(drafts)
    base = 4 + num_right + 1
    result = verifier.step(
        [row(1, base, truth[1 : num_right + 2], done=base - 1, feed=1, offset=3)]
    )
    assert list(result.rows[0].token_ids) == [truth[num_right + 2]]


@pytest.mark.parametrize("logprobs", [None, 2])
def test_a_row_the_target_has_no_numbers_for_ends_with_an_error_beside_others(logprobs):
    verifier = Verifier(poison={9})
    params = RowParams(temperature=0.0, logprobs=logprobs)
    result = verifier.step(
        [row(1, blocks=(0,)), row(2, blocks=(1,)), row(3, feed=2, blocks=(2,))],
        opens=[
            opened(1, params=params),
            opened(2, (1, 9, 2), params=params),
            opened(3, (9, 5, 2)),
        ],
    )
    sound, broken, chunk = result.rows
    assert list(sound.token_ids) == continuation(PROMPT, 1)
    assert len(sound.logprobs) == (logprobs is not None)
    for bad in (broken, chunk):
        assert (bad.error, bad.base_len, bad.token_ids, bad.logprobs) == (
            RowError.NON_FINITE, 3, (), ()
        )  # fmt: skip
    assert sound.error is None


@pytest.mark.parametrize("rule", list(Acceptance))
@pytest.mark.parametrize("place", range(4))
def test_a_draft_without_numbers_is_a_wrong_draft_unless_it_stands(rule, place):
    """After one that stands, the target itself would be at its end: after it, not before."""
    truth = continuation(PROMPT, 6)
    drafts = truth[1:5]
    bad = next(t for t in range(VOCAB) if t not in (*PROMPT, *truth))
    drafts[place] = bad
    verifier = prefilled(rule=rule, poison={bad})
    result, _ = decode(drafts, verifier=verifier)
    assert list(result.rows[0].token_ids) == truth[1 : place + 2]
    assert result.rows[0].error is None
    stands = prefilled(rule=rule, poison={truth[1 + place]})
    result, _ = decode(truth[1:5], verifier=stands)
    (answer,) = result.rows
    num_sound = truth[1:5].index(truth[1 + place]) + 1  # it may stand more than once
    assert (list(answer.token_ids), answer.error) == (truth[1 : 1 + num_sound], None)
    assert answer.num_accepted_tokens == num_sound - 1
    base = 4 + num_sound
    result = stands.step([row(1, base, answer.token_ids, done=base - 1, feed=1, offset=3)])
    assert (result.rows[0].token_ids, result.rows[0].error) == ((), RowError.NON_FINITE)


def test_a_prompt_in_chunks_gives_what_it_gives_at_once():
    verifier = Verifier()
    prompt = tuple(range(10))
    for done, feed, blocks in ((0, 4, (3,)), (4, 5, (8, 1)), (9, 1, ())):
        result = verifier.step(
            [row(1, 10, done=done, feed=feed, blocks=blocks, offset=(done + 3) // 4)],
            opens=[] if done else [opened(prompt=prompt)],
        )
        tokens = list(result.rows[0].token_ids)
        assert tokens == (continuation(prompt, 1) if done == 9 else [])


def test_a_chunk_may_cross_from_prompt_to_output_after_a_preemption():
    verifier = Verifier()
    output = continuation(PROMPT, 5)
    result = verifier.step(
        [row(1, 8, done=0, feed=5, blocks=(0, 1))], opens=[opened(output=output)]
    )
    assert result.rows[0].token_ids == ()
    result = verifier.step([row(1, 8, done=5, feed=3, offset=2)])
    assert list(result.rows[0].token_ids) == continuation((*PROMPT, *output), 1)
    assert [list(r.token_ids) for call in verifier.runner.calls for r in call] == [
        [*PROMPT, *output[:2]],
        output[2:],
    ]


def test_rows_of_all_kinds_share_a_step():
    verifier = prefilled()
    truth = continuation(PROMPT, 6)
    other = tuple(range(8))
    result = verifier.step(
        [
            row(1, 4, truth[:1], done=3, feed=1, k=3, blocks=(1,), offset=1),
            row(2, 8, done=0, feed=4, blocks=(2,)),
            row(3, 2, done=0, feed=2, blocks=(4,)),
        ],
        opens=[opened(2, other), opened(3, (7, 8))],
        drafts=[(1, 4, tuple(truth[1:4]))],
    )
    assert [list(r.token_ids) for r in result.rows] == [truth[1:5], [], continuation((7, 8), 1)]
    assert len(verifier.runner.calls) == 2, "one forward a step"


def test_a_repeated_step_gives_the_same_answer():
    verifier = prefilled()
    truth = continuation(PROMPT, 4)
    plan = VerifyPlan(2, 0, 7, (row(1, 4, truth[:1], done=3, feed=1, k=2, blocks=(1,), offset=1),))
    first = verifier.run(plan, [(1, 4, tuple(truth[1:3]))])
    again = verifier.run(plan, [(1, 4, tuple(truth[1:3]))])
    assert first.rows == again.rows
    assert verifier.run(plan).rows == first.rows, "its drafts got lost"
    assert verifier.run(replace(plan, step_id=1)) is None, "an older one"


def test_a_step_of_another_batch_may_come_first_and_each_batchs_last_one_has_its_answer():
    verifier = Verifier()
    late = VerifyPlan(3, 0, 7, (row(blocks=(0,)),), (opened(),))
    early = VerifyPlan(4, 1, 7, (row(2, blocks=(1,)),), (opened(2),))
    second = verifier.run(early)
    first = verifier.run(late)
    assert [list(r.rows[0].token_ids) for r in (first, second)] == [continuation(PROMPT, 1)] * 2
    calls = len(verifier.runner.calls)
    assert (verifier.run(late), verifier.run(early)) == (first, second)
    assert verifier.run(replace(late, step_id=2)) is None
    assert len(verifier.runner.calls) == calls


def test_log_probabilities_come_one_a_token_if_asked_for():
    verifier = Verifier()
    params = replace(GREEDY, logprobs=2)
    result = verifier.step([row(blocks=(0,))], opens=[opened(params=params)])
    (entry,) = result.rows[0].logprobs
    assert (entry.token_id,) == result.rows[0].token_ids
    assert len(entry.top) == 2


def test_timing_covers_the_step():
    timing = Verifier().step([row(blocks=(0,))], opens=[opened()]).timing
    assert timing.total_ns >= timing.forward_ns + timing.sample_ns > 0


# -- drafts that do not fit -----------------------------------------------------------------


def test_without_a_packet_the_target_goes_on_alone():
    verifier = prefilled()
    truth = continuation(PROMPT, 2)
    result = verifier.step([row(1, 4, truth[:1], done=3, feed=1, k=4, blocks=(1,), offset=1)])
    assert list(result.rows[0].token_ids) == truth[1:]
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (0, 1)


@pytest.mark.parametrize("base_len", [3, 5])
def test_drafts_of_another_length_are_dropped_and_counted(base_len):
    result, _ = decode(continuation(PROMPT, 6)[1:5], drafted_base=base_len)
    assert result.rows[0].num_draft_tokens == 0
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 2)[1:]
    assert result.num_stale_drafts == 1


def test_drafts_of_other_rows_are_nobodys():
    verifier = prefilled()
    result = verifier.step(
        [row(1, 4, continuation(PROMPT, 1), done=3, feed=1, k=2, blocks=(1,), offset=1)],
        drafts=[(2, 4, (1, 2))],
    )
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (0, 1)


def test_more_drafts_than_planned_are_cut():
    result, _ = decode(continuation(PROMPT, 6)[1:5], k=2)
    assert (result.rows[0].num_draft_tokens, result.rows[0].num_accepted_tokens) == (2, 2)
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 4)[1:]


def test_fewer_drafts_than_planned_are_fine():
    result, _ = decode(continuation(PROMPT, 3)[1:], k=4)
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (2, 0)
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 4)[1:]


def test_drafts_that_nobody_planned_are_ignored():
    verifier = prefilled()
    result = verifier.step(
        [row(1, 4, continuation(PROMPT, 1), done=3, feed=1, blocks=(1,), offset=1)],
        drafts=[(1, 4, (1, 2))],
    )
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (0, 0)


# -- open, close, blocks --------------------------------------------------------------------


def test_a_plan_without_rows_opens_and_closes_and_says_nothing():
    verifier = Verifier()
    assert verifier.step(opens=[opened(), opened(2)]) is None
    assert verifier.engine.num_rows == 2
    assert verifier.step(closes=[RowId(1), RowId(99)]) is None
    assert verifier.engine.num_rows == 1
    verifier.engine.reset()
    assert verifier.engine.num_rows == 0
    assert verifier.runner.calls == []


def test_an_id_can_be_closed_and_opened_in_one_plan():
    verifier = prefilled()
    result = verifier.step(
        [row(1, 2, done=0, feed=2, blocks=(9,))], closes=[RowId(1)], opens=[opened(1, (8, 8))]
    )
    assert list(result.rows[0].token_ids) == continuation((8, 8), 1)


def test_a_table_grows_at_its_offset_and_may_be_said_again():
    verifier = prefilled()
    truth = continuation(PROMPT, 3)
    verifier.step([row(1, 4, truth[:1], done=3, feed=1, k=1, blocks=(5,), offset=1)])
    verifier.step([row(1, 5, truth[:2], done=4, feed=1, blocks=(5,), offset=1)])
    assert verifier.engine._rows[RowId(1)].block_ids == [0, 5]
    with pytest.raises(ProtocolError, match="block_offset 3, the table has 2"):
        verifier.step([row(1, 6, truth, done=5, feed=1, blocks=(6,), offset=3)])


REFUSED = {
    "not open": row(9, blocks=(3,)),
    "hole": row(2, 9, (1,), done=0, feed=9, blocks=(2, 3, 4)),
    "nothing to feed": row(2, 3, feed=0, blocks=(2,)),
    "past the committed length": row(2, 3, done=1, feed=3, blocks=(2,)),
    "no room": row(2, 3, feed=3, k=2, blocks=(2,)),
    "drafts before the end of the prompt": row(2, 3, feed=2, k=1, blocks=(2,)),
    "no such block": row(2, 3, blocks=(64,)),
    "a negative block": row(2, 3, blocks=(-1,)),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_a_plan_that_does_not_fit_is_refused_and_the_other_rows_are_intact(refused):
    verifier = prefilled()
    truth = continuation(PROMPT, 3)
    verifier.step(opens=[opened(2, (4, 5, 6))])
    good = row(1, 4, truth[:1], done=3, feed=1, k=1, blocks=(1,), offset=1)
    with pytest.raises(ProtocolError, match=f"row {refused.row_id}|hole"):
        verifier.step([good, refused], drafts=[(1, 4, (truth[1],))])
    result = verifier.step([good], drafts=[(1, 4, (truth[1],))])
    assert list(result.rows[0].token_ids) == truth[1:3]


@pytest.mark.parametrize(
    "other", [row(1, 3, blocks=(0,)), row(2, 3, blocks=(0,))], ids=["twice", "its block"]
)
def test_two_rows_of_a_plan_never_write_one_block(other):
    verifier = prefilled()
    verifier.step(opens=[opened(2, (4, 5, 6))])
    with pytest.raises(ProtocolError, match="row 1: block 0 is also written by row 0"):
        verifier.step([row(1, 3, blocks=(0,)), other])


# -- rejection ------------------------------------------------------------------------------


def test_under_rejection_a_draft_with_the_targets_own_q_stands():
    verifier = prefilled(rule=Acceptance.REJECTION)
    params = RowParams(temperature=1e-3, seed=1)
    truth = continuation((4, 5), 3)
    verifier.step([row(2, 2, feed=2, blocks=(8, 9))], opens=[opened(2, (4, 5), params=params)])
    q = (((truth[1],), (1.0,)),)
    result = verifier.step(
        [row(2, 3, truth[:1], done=2, feed=1, k=1, offset=2)], drafts=[(2, 3, (truth[1],), (), q)]
    )
    assert list(result.rows[0].token_ids) == truth[1:3]


# -- drafts of its own ----------------------------------------------------------------------

LOOP = (1, 2, 3)


def looping(output, *, num_ngram=4, k=0, drafts=None, verifier=None, selection=None, source=0):
    """One step of a row whose prompt repeats; the fake model says anything, so few drafts stand."""
    verifier = verifier or Verifier()
    prompt = LOOP * 4
    base = len(prompt) + len(output)
    planned = row(1, base, done=0, feed=base, k=k, blocks=range(8))
    planned = planned._replace(num_ngram_tokens=num_ngram)
    verifier.num_steps += 1
    plan = VerifyPlan(
        verifier.num_steps,
        1,
        source,
        (planned,),
        (opened(prompt=prompt, output=output),),
        selection=selection,
    )
    return verifier.run(plan, drafts), verifier


def test_where_no_drafts_come_the_row_is_drafted_from_its_own_tokens():
    result, verifier = looping(())
    (answer,) = result.rows
    assert (answer.is_ngram, answer.num_draft_tokens) == (True, 1)
    assert list(verifier.runner.calls[-1][0].token_ids) == [*LOOP * 4, 1]
    assert list(answer.token_ids) == continuation(LOOP * 4, answer.num_accepted_tokens + 1)


def test_drafts_that_come_are_taken_and_none_of_its_own():
    truth = continuation(LOOP * 4, 3)
    result, _ = looping((), k=2, source=7, drafts=[(1, 12, tuple(truth[:2]))])
    (answer,) = result.rows
    assert (answer.is_ngram, answer.num_draft_tokens, answer.num_accepted_tokens) == (False, 2, 2)


@pytest.mark.parametrize("drafts", [None, [], [(1, 11, (5, 6))], [(2, 12, (5, 6))]])
def test_drafts_that_are_late_or_stale_are_made_up_for_and_still_counted(drafts):
    result, _ = looping((), k=2, source=7, drafts=drafts)
    assert (result.rows[0].is_ngram, result.num_stale_drafts) == (True, 1)


def test_a_drafter_that_could_not_draft_is_made_up_for_too():
    result, _ = looping((), k=2, source=7, drafts=[(1, 12, ())])
    assert (result.rows[0].is_ngram, result.num_stale_drafts) == (True, 0)


def test_a_budget_of_the_step_leaves_no_room_for_others():
    result, _ = looping((), k=2, source=7, selection=Selection(8))
    assert not result.rows[0].is_ngram


def test_without_leave_of_the_plan_there_are_none():
    result, _ = looping((), num_ngram=0)
    assert (result.rows[0].is_ngram, result.rows[0].num_draft_tokens) == (False, 0)


@pytest.mark.parametrize("blocks", [1, 3])
def test_room_for_its_own_drafts_is_checked(blocks):
    planned = row(1, 12, feed=12, blocks=range(blocks))._replace(num_ngram_tokens=4)
    with pytest.raises(ProtocolError, match="do not fit"):
        Verifier().step([planned], opens=[opened(prompt=LOOP * 4)])


def test_a_chunk_of_a_prompt_has_no_drafts_of_its_own():
    planned = row(1, 12, feed=8, blocks=range(8))._replace(num_ngram_tokens=4)
    with pytest.raises(ProtocolError, match="do not fit"):
        Verifier().step([planned], opens=[opened(prompt=LOOP * 4)])


@pytest.mark.parametrize("rule", Acceptance)
@pytest.mark.parametrize("temperature", [0.0, 20.0])
def test_its_own_drafts_change_no_token(rule, temperature):
    params = RowParams(temperature=temperature, seed=3)
    outputs = []
    for num_ngram in (0, 4):
        verifier = Verifier(rule=rule, num_blocks=64)
        prompt, output = LOOP * 4, []
        num_own = 0
        while len(output) < 40:
            base = len(prompt) + len(output)
            planned = row(1, base, feed=base, blocks=range(20))._replace(num_ngram_tokens=num_ngram)
            result = verifier.step(
                [planned], opens=[opened(prompt=prompt, output=output, params=params)]
            )
            num_own += result.rows[0].num_draft_tokens
            output += result.rows[0].token_ids
        assert bool(num_own) == bool(num_ngram)
        outputs.append(output[:40])
    assert outputs[0] == outputs[1]
