from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minedraft.errors import ProtocolError
from minedraft.packets.packet import DraftPacket
from minedraft.plans import DraftPlan, DraftRow, OpenRow
from minedraft.services.drafter.config import DrafterKind
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.types import DebugOptions, RowId, RowParams
from tests.fake_runner import CONTEXT, VOCAB, FakeRunner, continuation

GREEDY = RowParams(temperature=0.0)


class Drafter:
    """An engine, and the packets it sent."""

    def __init__(
        self, kind=DrafterKind.MODEL, *, num_blocks=64, block_size=4, poison=(), **options
    ) -> None:
        self.runner = FakeRunner(num_blocks=num_blocks, block_size=block_size, poison=poison)
        self.engine = DraftEngine(self.runner, kind, **options)
        self.packets: list[DraftPacket] = []
        self.num_steps = 0

    def step(self, rows=(), *, opens=(), closes=()):
        self.num_steps += 1
        plan = DraftPlan(self.num_steps, 1, 7, tuple(rows), tuple(opens), tuple(closes))
        return self.run(plan)

    def run(self, plan):
        return self.engine.step(plan, plan_ns=time.perf_counter_ns(), send=self.packets.append)

    def drafts(self, row_id=1):
        """What the last packet says of a row."""
        return next(list(r.token_ids) for r in self.packets[-1].rows if r.row_id == row_id)


def opened(row_id=1, prompt=(1, 2, 3), output=(), params=GREEDY, **more) -> OpenRow:
    return OpenRow(RowId(row_id), tuple(prompt), tuple(output), params, **more)


def row(row_id=1, base_len=3, new=(), k=4) -> DraftRow:
    return DraftRow(RowId(row_id), base_len, tuple(new), k)


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
    assert (result.num_draft_tokens, result.num_rows, result.num_behind) == (0, 0, 0)
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


# -- the catch-up budget --------------------------------------------------------------------


def test_a_long_prompt_is_fed_over_several_steps_and_drafted_for_at_the_end():
    drafter = Drafter(max_catch_up_tokens=4)
    prompt = tuple(range(10))
    behind = []
    for _ in range(3):
        result = drafter.step(
            [row(base_len=10, k=2)], opens=[opened(1, prompt)] if not behind else ()
        )
        behind.append((result.num_behind, len(drafter.packets[-1].rows[0].token_ids)))
    assert behind == [(1, 0), (1, 0), (0, 2)]
    assert drafter.drafts() == continuation(prompt, 2)


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


# -- kinds ----------------------------------------------------------------------------------


def test_an_anti_oracle_never_proposes_what_the_model_says():
    drafter = Drafter(DrafterKind.ANTI_ORACLE)
    drafter.step([row()], opens=[opened()])
    history = [1, 2, 3]
    for token in drafter.drafts():
        assert token == (continuation(history, 1)[0] + 1) % VOCAB
        history.append(token)


def test_a_scripted_drafter_proposes_the_reference_without_a_model_step():
    drafter = Drafter(DrafterKind.SCRIPTED)
    reference = (10, 11, 12, 13, 14)
    drafter.step([row()], opens=[opened(debug=DebugOptions(reference))])
    assert drafter.drafts() == [10, 11, 12, 13]
    drafter.step([row(base_len=6, new=(10, 11, 12))])
    assert drafter.drafts() == [13, 14]
    assert drafter.runner.calls == []


def test_a_scripted_drafter_is_never_behind_so_that_a_swap_to_it_ends():
    drafter = Drafter(DrafterKind.SCRIPTED)
    result = drafter.step([row(k=0)], opens=[opened(debug=DebugOptions((10,)))])
    assert result.num_behind == 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_synthetic_drafter_is_right_as_often_as_asked(share):
    drafter = Drafter(DrafterKind.SYNTHETIC)
    reference = tuple(continuation((1, 2, 3), 30))
    drafter.step(
        [row(k=16)],
        opens=[opened(debug=DebugOptions(reference, share))],
    )
    shift = 0 if share else 1
    assert drafter.drafts() == [(token + shift) % VOCAB for token in reference[:16]]


def test_a_synthetic_drafter_throws_one_coin_a_position_however_often_it_is_asked():
    reference = tuple(continuation((1, 2, 3), 60))
    drafter = Drafter(DrafterKind.SYNTHETIC)
    opens = [opened(debug=DebugOptions(reference, 0.5))]
    drafter.step([row(k=30)], opens=opens)
    first = drafter.drafts()
    assert 4 < sum(a == b for a, b in zip(first, reference, strict=False)) < 26
    drafter.step([row(base_len=8, new=reference[:5], k=25)])
    assert drafter.drafts() == first[5:]


def test_without_a_reference_a_synthetic_drafter_is_a_model():
    drafter = Drafter(DrafterKind.SYNTHETIC)
    drafter.step([row()], opens=[opened()])
    assert drafter.drafts() == continuation((1, 2, 3), 4)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_reference_token_that_the_drafter_does_not_have_is_none(share):
    drafter = Drafter(DrafterKind.SYNTHETIC)
    drafter.step(
        [row()],
        opens=[opened(debug=DebugOptions((VOCAB, VOCAB + 9), share))],
    )
    assert drafter.drafts() == continuation((1, 2, 3), 4)


# -- q --------------------------------------------------------------------------------------


def test_with_q_every_draft_carries_the_distribution_it_was_drawn_from():
    drafter = Drafter(q_width=5)
    drafter.step([row()], opens=[opened(params=RowParams(temperature=1.0, seed=3))])
    sent = drafter.packets[0].rows[0]
    assert len(sent.q) == len(sent.token_ids) == 4
    for token, (ids, probs) in zip(sent.token_ids, sent.q, strict=True):
        assert token in ids
        assert len(ids) == len(probs) <= 5
        assert sum(probs) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("kind", [DrafterKind.ANTI_ORACLE, DrafterKind.SCRIPTED])
def test_a_token_that_was_not_drawn_is_a_proposal_of_its_own(kind):
    drafter = Drafter(kind, q_width=5)
    drafter.step([row()], opens=[opened(debug=DebugOptions((9, 8, 7, 6)))])
    sent = drafter.packets[0].rows[0]
    assert len(sent.token_ids) == 4
    assert sent.q == tuple(((token,), (1.0,)) for token in sent.token_ids)


def test_an_imposed_token_is_a_proposal_of_its_own_also_when_it_is_the_drawn_one():
    """What was drawn had no say in it: with the model's q the output's law would shift to it."""
    drawn, given = Drafter(q_width=5), Drafter(DrafterKind.SYNTHETIC, q_width=5)
    params = RowParams(temperature=1.0, seed=3)
    drawn.step([row()], opens=[opened(params=params)])
    reference = drawn.packets[0].rows[0].token_ids
    given.step([row()], opens=[opened(params=params, debug=DebugOptions(reference, 1.0))])
    sent = given.packets[0].rows[0]
    assert sent.token_ids == reference
    assert sent.q == tuple(((token,), (1.0,)) for token in reference)


def test_without_q_only_ids_travel():
    drafter = Drafter()
    drafter.step([row()], opens=[opened()])
    assert drafter.packets[0].rows[0].q == ()


# -- whatever happened before ---------------------------------------------------------------

TOKEN = st.integers(0, VOCAB - 1)
INDEX = st.integers(0, 99)


class DraftMachine(RuleBasedStateMachine):
    """Drafts are the pure continuation of the committed tokens or there are none."""

    @initialize(
        num_blocks=st.sampled_from((64, 12, 6)),
        budget=st.sampled_from((2048, 7)),
        block_size=st.sampled_from((4, 1, 3)),
    )
    def start(self, num_blocks, budget, block_size):
        self.drafter = Drafter(
            num_blocks=num_blocks, block_size=block_size, max_catch_up_tokens=budget
        )
        self.is_roomy = num_blocks == 64 and block_size == 4 and budget > 7
        self.has_budget = budget < CONTEXT
        self.committed: dict[int, list[int]] = {}
        self.known: dict[int, int] = {}
        self.next_id = 1
        self.last: DraftPlan | None = None

    @precondition(lambda self: len(self.committed) < 4)
    @rule(prompt=st.lists(TOKEN, min_size=1, max_size=12))
    def arrive(self, prompt):
        self.committed[self.next_id] = prompt
        self.next_id += 1

    @precondition(lambda self: self.committed)
    @rule(index=INDEX, accepted=st.integers(0, 5), token=TOKEN)
    def commit(self, index, accepted, token):
        """Some drafts are right, then the target says something else."""
        history = self.committed[list(self.committed)[index % len(self.committed)]]
        if len(history) < 50:
            history += [*continuation(history, accepted), token]

    @precondition(lambda self: self.committed)
    @rule(index=INDEX)
    def end(self, index):
        row_id = list(self.committed)[index % len(self.committed)]
        del self.committed[row_id]
        if self.known.pop(row_id, None) is not None:
            self.drafter.step(closes=[RowId(row_id)])

    @precondition(lambda self: self.committed)
    @rule(
        ks=st.lists(st.integers(0, 5), min_size=4, max_size=4),
        skip=INDEX,
        repeats=st.integers(0, 2),
    )
    def step(self, ks, skip, repeats):
        rows, opens = [], []
        for row_id, k in zip(list(self.committed), ks, strict=False):
            history = self.committed[row_id]
            if len(self.committed) > 1 and skip % 5 == row_id % 5:
                continue
            if row_id not in self.known:
                opens.append(opened(row_id, history))
                self.known[row_id] = len(history)
            first = max(self.known[row_id] - repeats, 1)
            rows.append(row(row_id, len(history), history[first:], k))
            self.known[row_id] = len(history)
        if not rows:
            return
        self.drafter.num_steps += 1
        self.last = DraftPlan(self.drafter.num_steps, 0, 7, tuple(rows), tuple(opens))
        self._check(self.last)

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self):
        """The same plan again, as after a lost answer."""
        if all(
            len(self.committed.get(planned.row_id, ())) == planned.base_len
            for planned in self.last.rows
        ):
            self._check(replace(self.last, opens=()))

    def must_draft(self, planned):
        """There is room for everybody, or for this row, which is alone."""
        runner = self.drafter.runner
        fits = planned.base_len + 5 <= runner.num_blocks * runner.block_size
        return self.is_roomy or (len(self.known) == 1 and fits and not self.has_budget)

    def _check(self, plan):
        self.drafter.packets.clear()
        result = self.drafter.run(plan)
        asked = [planned for planned in plan.rows if planned.num_draft_tokens]
        sent = {r.row_id: r for packet in self.drafter.packets for r in packet.rows}
        assert set(sent) == {planned.row_id for planned in asked}
        for planned in asked:
            drafts = list(sent[planned.row_id].token_ids)
            assert sent[planned.row_id].base_len == planned.base_len
            want = continuation(self.committed[planned.row_id], planned.num_draft_tokens)
            assert drafts == want or (drafts == [] and not self.must_draft(planned))
        assert result.num_draft_tokens == sum(len(r.token_ids) for r in sent.values())
        assert result.num_behind == 0 or not self.is_roomy

    @invariant()
    def rows_are_those_that_are_open(self):
        if hasattr(self, "drafter"):
            assert self.drafter.engine.rows.num_rows == len(self.known)

    def teardown(self):
        if hasattr(self, "drafter"):
            self.drafter.step(closes=[RowId(row_id) for row_id in self.known])
            assert self.drafter.engine.rows.num_blocks_used == 0


TestDraftMachine = DraftMachine.TestCase
TestDraftMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_the_context_of_the_fake_is_long_enough_for_the_machine():
    assert CONTEXT >= 50 + 6 + 6 + 12
