from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from minedraft.errors import ProtocolError
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.types import Acceptance, RowError, RowId, RowParams
from tests.fake_runner import VOCAB, FakeRunner, continuation

GREEDY = RowParams(temperature=0.0)
PROMPT = (1, 2, 3)


class Verifier:
    """An engine with its pool, and a coordinator's view of the rows' blocks."""

    def __init__(self, *, rule=Acceptance.COUPLED, num_blocks=64, block_size=4, poison=()) -> None:
        self.runner = FakeRunner(num_blocks=num_blocks, block_size=block_size, poison=poison)
        self.engine = VerifyEngine(self.runner, rule)
        self.num_steps = 0

    def step(self, rows=(), *, opens=(), closes=(), drafts=None):
        self.num_steps += 1
        plan = VerifyPlan(self.num_steps, 1, 7, tuple(rows), tuple(opens), tuple(closes))
        return self.run(plan, drafts)

    def run(self, plan, drafts=None):
        packet = None
        if drafts is not None:
            rows = tuple(DraftedRow(*row) for row in drafts)
            packet = DraftPacket(7, plan.step_id, plan.batch, rows)
        return self.engine.step(plan, packet, plan_ns=time.perf_counter_ns(), drafts_ns=None)


def opened(row_id=1, prompt=PROMPT, output=(), params=GREEDY) -> OpenRow:
    return OpenRow(RowId(row_id), tuple(prompt), tuple(output), params)


def row(row_id=1, base_len=3, new=(), *, done=0, feed=3, k=0, blocks=(), offset=0) -> VerifyRow:
    return VerifyRow(RowId(row_id), base_len, tuple(new), done, feed, k, tuple(blocks), offset)


def prefilled(**options) -> Verifier:
    """Row 1 with its prompt in block 0 and four tokens of room in block 1."""
    verifier = Verifier(**options)
    result = verifier.step([row(blocks=(0,))], opens=[opened()])
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 1)
    return verifier


def decode(drafts, *, verifier=None, base_len=4, k=None, drafted_base=4):
    """One step of row 1 with these drafts; its result and the verifier."""
    verifier = verifier or prefilled()
    new = continuation(PROMPT, base_len - 3)
    result = verifier.step(
        [
            row(
                1,
                base_len,
                new,
                done=base_len - 1,
                feed=1,
                k=k or len(drafts),
                blocks=(1, 2),
                offset=1,
            )
        ],
        drafts=[(1, drafted_base, tuple(drafts))],
    )
    return result, verifier


# -- one step -------------------------------------------------------------------------------


def test_a_prompt_gives_the_first_token():
    result = Verifier().step([row(blocks=(5,))], opens=[opened()])
    assert (result.step_id, result.batch) == (1, 1)
    assert list(result.rows[0].token_ids) == continuation(PROMPT, 1)
    assert (result.rows[0].num_draft_tokens, result.num_stale_drafts) == (0, 0)


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


# -- whatever happened before ---------------------------------------------------------------

INDEX = st.integers(0, 99)


class VerifyMachine(RuleBasedStateMachine):
    """The output is plain decoding, whatever drafts came, were lost, wrong or repeated."""

    @initialize(block_size=st.sampled_from((4, 1, 3)))
    def start(self, block_size):
        self.verifier = Verifier(num_blocks=200, block_size=block_size)
        self.free = list(range(200))
        self.histories: dict[int, list[int]] = {}
        self.prompts: dict[int, int] = {}
        self.done: dict[int, int] = {}
        self.blocks: dict[int, list[int]] = {}
        self.told: dict[int, int] = {}
        self.next_id = 1

    @precondition(lambda self: len(self.histories) < 4)
    @rule(prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9))
    def arrive(self, prompt):
        self._add(list(prompt), len(prompt))

    def _add(self, history, num_prompt):
        row_id, self.next_id = self.next_id, self.next_id + 1
        self.histories[row_id], self.prompts[row_id] = history, num_prompt
        self.done[row_id] = self.told[row_id] = 0
        self.blocks[row_id] = []

    @precondition(lambda self: self.histories)
    @rule(index=INDEX, is_preempted=st.booleans())
    def end_or_preempt(self, index, is_preempted):
        row_id = list(self.histories)[index % len(self.histories)]
        history, num_prompt = self.histories.pop(row_id), self.prompts[row_id]
        self.free += self.blocks[row_id]
        if self.told[row_id]:
            self.verifier.step(closes=[RowId(row_id)])
        if is_preempted:  # another life with the same tokens
            self._add(history, num_prompt)

    @precondition(lambda self: self.histories)
    @rule(
        num_right=st.integers(0, 4),
        k=st.integers(0, 4),
        chunk=st.integers(1, 12),
        came=st.sampled_from(("in time", "not", "stale")),
        repeat=st.booleans(),
    )
    def step(self, num_right, k, chunk, came, repeat):
        rows, opens, drafts = [], [], []
        for row_id, history in self.histories.items():
            if len(history) > 60:
                continue
            length, done = len(history), self.done[row_id]
            feed = min(chunk, length - done)
            row_k = k if done + feed == length else 0
            if not self.told[row_id]:
                num_prompt = self.prompts[row_id]
                opens.append(opened(row_id, history[:num_prompt], history[num_prompt:]))
                self.told[row_id] = length
            table = self.blocks[row_id]
            offset = len(table)
            while len(table) * self.verifier.runner.block_size < done + feed + row_k:
                table.append(self.free.pop(0))
            rows.append(
                row(
                    row_id,
                    length,
                    history[self.told[row_id] :],
                    done=done,
                    feed=feed,
                    k=row_k,
                    blocks=table[offset:],
                    offset=offset,
                )
            )
            self.told[row_id] = length
            right = continuation(history, row_k)
            mixed = [t if i < num_right else (t + 1) % VOCAB for i, t in enumerate(right)]
            if row_k:
                drafts.append((row_id, length - (came == "stale"), tuple(mixed)))
        if not rows:
            return
        self.verifier.num_steps += 1
        plan = VerifyPlan(self.verifier.num_steps, 0, 7, tuple(rows), tuple(opens))
        given = None if came == "not" else drafts
        result = self.verifier.run(plan, given)
        if repeat:
            assert self.verifier.run(replace(plan, opens=()), given).rows == result.rows
        for planned, answer in zip(rows, result.rows, strict=True):
            history = self.histories[planned.row_id]
            self.done[planned.row_id] += planned.num_feed
            if planned.num_computed + planned.num_feed < planned.base_len:
                assert answer.token_ids == ()
                continue
            accepted = min(num_right, planned.num_draft_tokens) if came == "in time" else 0
            assert answer.num_accepted_tokens == accepted
            assert list(answer.token_ids) == continuation(history, accepted + 1)
            history += answer.token_ids
            self.done[planned.row_id] = len(history) - 1

    def teardown(self):
        if hasattr(self, "verifier"):
            assert self.verifier.engine.num_rows == sum(
                bool(self.told[row_id]) for row_id in self.histories
            )


TestVerifyMachine = VerifyMachine.TestCase
TestVerifyMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
