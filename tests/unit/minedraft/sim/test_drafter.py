from __future__ import annotations

from types import MappingProxyType

import pytest

from minedraft.plans import DraftPlan, DraftRow, OpenRow, Score, Stop
from minedraft.selection import NUM_CLASSES, Curves
from minedraft.sim.devices import Devices
from minedraft.sim.drafter import SimDrafter
from minedraft.sim.events import Events
from minedraft.sim.outputs import AcceptanceModel, Output
from minedraft.sim.verifier import Drafted
from minedraft.types import RowId, RowParams


class Costs:
    """Notes what it is asked, and says how long that takes."""

    def __init__(self):
        self.asked = []

    def draft_ns(self, rows_per_depth, num_catch_up_tokens, context, *, overlapped):
        if overlapped == 0:
            self.asked.append((tuple(rows_per_depth), num_catch_up_tokens, context))
        return 10


@pytest.fixture
def drafter():
    """A drafter, what it was asked to pay for, and what it sent."""

    def make(max_catch_up_tokens=512, outputs=MappingProxyType({})):
        events, costs = Events(), Costs()
        packets, results = [], []
        made = SimDrafter(
            events,
            Devices(events),
            costs,
            outputs,
            max_catch_up_tokens=max_catch_up_tokens,
            on_packet=lambda *packet: packets.append(packet),
            on_result=results.append,
        )
        made.packets, made.results, made.asked = packets, results, costs.asked
        made.run = lambda: events.run(goes_on=lambda: True)
        return made

    return make


def plan(step_id, *rows, opens=(), **options):
    opened = tuple(OpenRow(RowId(row), (1,), (), RowParams()) for row in opens)
    made = tuple(DraftRow(RowId(row), base_len, (), k) for row, base_len, k in rows)
    return DraftPlan(step_id, 0, 7, made, opened, **options)


def test_plans_run_in_order_and_send_their_drafts(drafter):
    made = drafter()
    made.put(plan(1, (1, 20, 3), opens=(1,)))
    made.put(plan(2, (1, 22, 2)))
    made.run()
    assert made.packets == [(7, 1, {1: Drafted(20, 3)}), (7, 2, {1: Drafted(22, 2)})]
    assert [(r.step_id, r.num_rows, r.num_draft_tokens) for r in made.results] == [
        (1, 1, 3),
        (2, 1, 2),
    ]
    assert made.busy_ns == 20


def test_it_feeds_what_its_cache_lacks(drafter):
    made = drafter()
    made.put(plan(1, (1, 20, 3), opens=(1,)))  # a prompt
    made.put(plan(2, (1, 22, 3)))  # one draft of three stood: 21 agree
    made.put(plan(3, (1, 26, 3)))  # all three stood: the last one was not fed, and the bonus token
    made.run()
    assert made.asked == [((1, 1, 1), 20, 20), ((1, 1, 1), 1, 22), ((1, 1, 1), 2, 26)]
    assert [result.num_catch_up_tokens for result in made.results] == [20, 1, 2]


def test_a_row_that_cannot_catch_up_has_no_drafts_and_is_said_to_be_behind(drafter):
    made = drafter(max_catch_up_tokens=12)
    made.put(plan(1, (1, 30, 2), (2, 5, 2), opens=(1, 2)))
    made.put(plan(2, (1, 30, 2)))
    made.put(plan(3, (1, 30, 2)))
    made.run()
    assert made.packets == [(7, 1, {2: Drafted(5, 2)}), (7, 2, {}), (7, 3, {1: Drafted(30, 2)})]
    behind = [[(row.row_id, row.is_behind) for row in result.rows] for result in made.results]
    assert behind == [[(1, True)], [(1, True)], []]


def test_a_plan_may_ask_for_less(drafter):
    made = drafter()
    made.put(plan(1, (1, 30, 2), opens=(1,), max_catch_up_tokens=10))
    made.run()
    assert made.results[0].num_catch_up_tokens == 10


def test_rows_of_several_lengths_of_drafts_are_counted_by_depth(drafter):
    made = drafter()
    made.put(plan(1, (1, 2, 3), (2, 2, 1), (3, 2, 0), opens=(1, 2, 3)))
    made.run()
    assert made.asked == [((2, 1, 1), 6, 6)]


def test_a_trial_sends_no_packet(drafter):
    made = drafter()
    made.put(plan(1, (1, 2, 3), opens=(1,), is_trial=True))
    made.run()
    assert not made.packets
    assert made.results[0].num_draft_tokens == 3


def test_a_lost_link_takes_plans_and_rows_along(drafter):
    made = drafter()
    made.put(plan(1, (1, 2, 3), opens=(1,)))
    made.put(plan(2, (1, 3, 3)))
    made.forget()
    made.run()
    assert [result.step_id for result in made.results] == [1]  # it was under way


# -- scores ---------------------------------------------------------------------------------


def outputs(*chances):
    """What follows the prompt of the row with seed 0."""
    return {0: Output(AcceptanceModel(chances), 0, 20, chance=1)}


def test_scores_travel_in_the_packet_and_in_the_result(drafter):
    given = outputs(0.7)
    made = drafter(outputs=given)
    made.put(plan(1, (1, 20, 3), (2, 20, 0), opens=(1, 2), score=Score.MARGIN))
    made.put(plan(2, (1, 20, 3), score=Score.SURPRISAL))
    made.put(plan(3, (1, 20, 3)))
    made.run()
    margins = given[0].scores(20, 3)
    surprisals = given[0].scores(20, 3, is_surprisal=True)
    assert made.packets[0] == (7, 1, {1: Drafted(20, 3, margins)})
    assert made.packets[1] == (7, 2, {1: Drafted(20, 3, surprisals)})
    assert made.packets[2] == (7, 3, {1: Drafted(20, 3)})
    said = [[(row.row_id, row.scores) for row in result.rows] for result in made.results]
    assert said == [[(1, margins), (2, ())], [(1, surprisals)], []]


def test_drafts_are_judged_when_the_tokens_there_are_committed(drafter):
    made = drafter(outputs=outputs(1.0, 1.0, 0.0))
    for step, base_len in enumerate((20, 21, 25, 25), start=1):
        made.put(plan(step, (1, base_len, 3), opens=(1,) if step == 1 else (), score=Score.MARGIN))
    made.run()
    labels = [result.rows[0][4:] for result in made.results]
    assert labels == [(0, 0, 0), (20, 1, 1), (20, 2, 3), (21, 2, 3)]


def test_a_row_stops_after_its_first_draft_that_hardly_stands(drafter):
    given = outputs(0.7)
    made = drafter(outputs=given)
    curves = Curves((0.0,) * NUM_CLASSES, (0.0,) * NUM_CLASSES)  # each halves it
    stop = Stop(0.3, curves, (0.0, -50.0))
    made.put(plan(1, (1, 20, 5), (2, 20, 5), opens=(1, 2), score=Score.MARGIN, stop=stop))
    made.run()
    assert [d.num_drafts for d in made.packets[0][2].values()] == [2, 1]
    assert made.asked == [((2, 1), 40, 40)]
    assert made.results[0].num_draft_tokens == 3
