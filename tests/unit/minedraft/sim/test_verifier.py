from __future__ import annotations

import pytest

from minedraft.plans import OpenRow, VerifyPlan, VerifyRow
from minedraft.selection import NUM_CLASSES, Curves, Selection
from minedraft.sim.devices import Devices
from minedraft.sim.events import BEGIN_NS, Events
from minedraft.sim.outputs import AcceptanceModel, Output
from minedraft.sim.step_costs import FlatCosts
from minedraft.sim.verifier import Drafted, SimVerifier
from minedraft.types import RowId, RowParams

V = 100
TIMEOUT = 1000


@pytest.fixture
def made():
    events = Events()
    verifier = SimVerifier(
        events,
        Devices(events),
        FlatCosts(V, 0),
        {1: Output(AcceptanceModel((1.0,)), 1, 4, chance=1)},
        on_begun=lambda begun: verifier.begun.append((events.now_ns - BEGIN_NS, begun.step_id)),
        on_result=lambda result: verifier.results.append((events.now_ns - BEGIN_NS, result)),
    )
    verifier.events, verifier.begun, verifier.results = events, [], []
    verifier.at = events.after
    verifier.run = lambda: events.run(goes_on=lambda: True)
    return verifier


def plan(step_id, batch, *, source=0, k=0, base_len=4, num_computed=3, feed=1, seed=1):
    row = VerifyRow(RowId(batch + 1), base_len, (), num_computed, feed, k, (), 0)
    opened = (OpenRow(RowId(batch + 1), (1,) * 4, (), RowParams(seed=seed)),)
    return VerifyPlan(step_id, batch, source, (row,), opened, (), TIMEOUT)


def order(made):
    return [(time, result.step_id) for time, result in made.results]


def test_what_is_ready_first_runs_first(made):
    made.put(plan(1, 0, source=7, k=2))
    made.put(plan(2, 1))
    made.at(250, lambda: made.receive(7, 1, {RowId(1): Drafted(4, 2)}))
    made.run()
    assert order(made) == [(V, 2), (250 + V, 1)]
    assert made.begun == [(0, 2), (250, 1)]


def test_plans_of_one_batch_keep_their_order(made):
    made.put(plan(1, 0, source=7, k=2))
    made.put(plan(2, 0))
    made.run()
    assert order(made) == [(TIMEOUT + V, 1), (TIMEOUT + 2 * V, 2)]


def test_drafts_that_do_not_come_are_waited_for_and_counted(made):
    made.put(plan(1, 0, source=7, k=2))
    made.run()
    ((time, result),) = made.results
    assert time == TIMEOUT + V
    assert result.num_stale_drafts == 1
    assert result.rows[0].num_draft_tokens == 0
    assert len(result.rows[0].token_ids) == 1
    assert result.timing.wait_ns == TIMEOUT


def test_drafts_of_another_length_are_stale(made):
    made.put(plan(1, 0, source=7, k=2))
    made.receive(7, 1, {RowId(1): Drafted(3, 2)})
    made.run()
    assert made.results[0][1].num_stale_drafts == 1


def test_late_drafts_are_dropped(made):
    made.put(plan(1, 0, source=7, k=2))
    made.at(TIMEOUT + 10, lambda: made.receive(7, 1, {RowId(1): Drafted(4, 2)}))
    made.run()
    assert made.results[0][1].rows[0].num_draft_tokens == 0


def test_a_step_whose_link_is_gone_waits_no_more(made):
    made.put(plan(1, 0, source=7, k=2))
    made.at(30, lambda: made.forget(7))
    made.run()
    assert order(made) == [(30 + V, 1)]


def test_drafts_that_stand_are_followed_by_one_token(made):
    made.put(plan(1, 0, source=7, k=2))
    made.receive(7, 1, {RowId(1): Drafted(4, 2)})
    made.run()
    (row,) = made.results[0][1].rows
    output = Output(AcceptanceModel(), 1, 4, chance=1)
    assert row.token_ids == tuple(output.token(4 + i) for i in range(3))
    assert (row.num_draft_tokens, row.num_accepted_tokens) == (2, 2)


def test_a_chunk_of_a_prompt_has_no_token(made):
    made.put(plan(1, 0, num_computed=0, feed=2))
    made.run()
    assert made.results[0][1].rows[0].token_ids == ()


def test_it_takes_two_plans_while_one_runs(made):
    for step_id in range(1, 5):
        made.put(plan(step_id, step_id))
    assert made.begun == [(0, 1), (0, 2), (0, 3)]
    made.run()
    assert made.begun[3] == (V, 4)


def test_a_row_whose_request_has_ended_gets_an_answer_of_its_form(made):
    made.put(plan(1, 0, seed=99))
    made.run()
    assert len(made.results[0][1].rows[0].token_ids) == 1


def test_idle_time_is_told_from_time_waited(made):
    made.put(plan(1, 0))
    made.at(V + 40, lambda: made.put(plan(2, 0, base_len=5, num_computed=4)))
    made.run()
    timing = made.results[1][1].timing
    assert (timing.idle_ns, timing.bubble_ns, timing.wait_ns) == (40, 0, 0)


def test_of_drafts_the_best_are_verified_within_the_budget(made):
    rows = [VerifyRow(RowId(i), 4, (), 3, 1, 2, (), 0) for i in (1, 2, 3)]
    opened = tuple(OpenRow(RowId(i), (1,) * 4, (), RowParams(seed=1)) for i in (1, 2, 3))
    curves = Curves((1.0,) * NUM_CLASSES, (-2.0,) * NUM_CLASSES)
    selection = Selection(2, 0, curves, (0.0, 0.0, 9.0))
    made.put(VerifyPlan(1, 0, 7, tuple(rows), opened, (), TIMEOUT, selection=selection))
    drafts = {RowId(1): Drafted(4, 2, (1.0, 4.0)), RowId(2): Drafted(4, 2, (3.0, 0.0))}
    made.receive(7, 1, drafts)
    made.run()
    result = made.results[0][1]
    assert [row.num_draft_tokens for row in result.rows] == [1, 1, 0]
    assert [row.num_accepted_tokens for row in result.rows] == [1, 1, 0]
    assert result.num_stale_drafts == 1, "the row that no drafts came for"
