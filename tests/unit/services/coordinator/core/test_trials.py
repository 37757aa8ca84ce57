from __future__ import annotations

from dataclasses import fields

import pytest

from minedraft.services.coordinator.core.counters import Counters
from minedraft.services.coordinator.core.request import Phase
from minedraft.services.coordinator.core.trials import MAX_LOSSES
from minedraft.types import Mode
from tests.trial_world import MS, TrialWorld


def world_of(mode: Mode | None = None, **options) -> TrialWorld:
    world = TrialWorld(mode, **options) if mode is not None else TrialWorld(**options)
    world.verifier_up()
    world.drafter_up()
    return world


def counts(world: TrialWorld) -> dict[str, object]:
    return {each.name: getattr(world.core.counters, each.name) for each in fields(Counters)}


# -- what they find out ---------------------------------------------------------------------


def test_idle_workers_are_measured_and_nothing_is_left():
    world = world_of()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")
    trials = world.core.trials
    assert trials.num_over == trials.num_planned == len(world.trials) > 20
    assert 0 < trials.spent_ns < 10_000 * MS
    world.check_nothing_is_left()
    assert not any(counts(world).values())
    assert not any(draft.rows and not draft.is_trial for draft, _ in world.trials if draft)
    assert not any(verify.source for _, verify in world.trials), "nothing waits for drafts"


def test_costs_of_every_size_up_to_all_slots_are_known():
    """Eight slots, k = 3."""
    world = world_of()
    world.run_dry()
    costs = world.core.costs
    for num_rows in range(1, 9):
        for k in (0, 3):
            size = num_rows * (k + 1)
            known = costs.verify_ns(size, num_rows, 4 * num_rows, overlapped=0)
            assert known == pytest.approx(world.verify_ns(size), rel=0.05)
        for k in (1, 2, 3):
            known = costs.draft_ns((num_rows,) * k, num_rows, num_rows, overlapped=0)
            assert known == pytest.approx(world.draft_ns(num_rows, k, num_rows), rel=0.05)
    assert costs.verify_ns(512, 1, 512, overlapped=0) == pytest.approx(532 * MS, rel=0.05)


def test_both_workers_are_measured_at_once():
    world = world_of()

    def verify_ns(num_tokens: int) -> int:
        """A quarter more while the drafter is at work."""
        draft, _ = world.trials[-1]
        return (20 + num_tokens) * MS * (5 if draft is not None else 4) // 4

    world.verify_ns, world.draft_ns = verify_ns, lambda *_: 60 * MS
    world.run_dry()
    size, rows = 4 * 4, 4
    alone, overlapped = (
        world.core.costs.verify_ns(size, rows, size, overlapped=each) for each in (False, True)
    )
    assert alone == pytest.approx(36 * MS, rel=0.02)
    assert overlapped == pytest.approx(45 * MS, rel=0.05)


def test_a_service_without_drafts_measures_the_verifier_only():
    world = world_of(Mode(1, 4, 0))
    world.run_dry()
    assert world.leg_origins == ("trials", "")
    assert world.core.costs.verify_ns(4, 4, 4, overlapped=0) == pytest.approx(24 * MS, rel=0.05)
    assert not any(draft for draft, _ in world.trials)


def test_a_drafter_that_comes_later_is_measured_then():
    world = TrialWorld()
    world.verifier_up()
    world.run_dry()
    assert world.leg_origins == ("trials",)
    num_trials = len(world.trials)
    world.drafter_up()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")
    assert all(draft is not None for draft, _ in world.trials[num_trials:])


def test_trials_end_when_their_time_is_spent():
    world = TrialWorld(trial_s=0.3)
    world.verifier_up()
    world.drafter_up()
    world.run_dry()
    trials = world.core.trials
    assert trials.spent_ns < 300 * MS
    assert len(world.trials) < trials.num_planned == trials.num_over
    assert world.leg_origins == ("trials", "trials")


def test_without_time_for_them_there_are_none():
    world = TrialWorld(trial_s=0)
    world.verifier_up()
    world.drafter_up()
    assert world.trials == []
    assert world.leg_origins == ("live", "live")


def test_what_does_not_fit_the_pool_is_left_out():
    world = world_of(num_blocks=5)
    world.run_dry()
    assert max(len(verify.rows) for _, verify in world.trials) == 4
    assert not any(row.num_feed > 20 for _, verify in world.trials for row in verify.rows)
    assert world.leg_origins == ("trials", "trials")


def test_a_stalled_trial_is_recognized():
    world = world_of()
    usual, is_first = world.verify_ns, True

    def verify_ns(num_tokens: int) -> int:
        nonlocal is_first
        stalls, is_first = is_first and num_tokens == 8, is_first and num_tokens != 8
        return usual(num_tokens) + 900 * MS * stalls

    world.verify_ns = verify_ns
    world.run_dry()
    assert not is_first
    assert world.core.costs.verify_ns(8, 8, 8, overlapped=0) == pytest.approx(28 * MS, rel=0.1)


# -- requests -------------------------------------------------------------------------------


def test_a_request_waits_for_the_trial_in_flight_and_ends_the_others():
    world = world_of()
    for _ in range(5):
        world.answer()
    num_trials = len(world.trials)
    world.submit("r")
    world.answer()
    assert world.core.in_flight_step(world.core.batches.batch_of("r")) > 0, "it steps already"
    world.run_dry()
    assert len(world.trials) == num_trials
    assert world.core.counters.num_finished == {"length": 1}
    assert world.leg_origins == ("live", "live")
    assert world.core.trials.num_over == world.core.trials.num_planned
    world.check_nothing_is_left()


def test_a_request_that_comes_while_the_drafter_is_measured_steps_at_once():
    world = TrialWorld()
    world.verifier_up()
    world.run_dry()
    world.drafter_up()
    assert world.draft_answers
    assert not world.verify_answers
    world.submit("r")
    assert world.verify_answers, "the verifier is free"
    world.run_dry()
    world.check_nothing_is_left()


def test_a_request_of_before_lets_idle_workers_be_measured_afterwards():
    """It was all over before anything could be learned of these models."""
    world = TrialWorld()
    world.submit("r")
    world.core.finish("r", "abort")
    world.verifier_up()
    assert world.trials


def test_counters_are_those_of_a_service_without_trials():
    found = []
    for trial_s in (10.0, 0.0):
        world = world_of(trial_s=trial_s)
        for _ in range(7):
            world.answer()
        for name in ("a", "b", "c"):
            world.submit(name)
        world.run_dry()
        world.check_nothing_is_left()
        found.append(counts(world))
        assert found[-1].pop("num_steps") == world.num_steps, "who steps with whom may differ"
        found[-1].pop("num_peak_blocks_for_all")
    assert found[0] == found[1]


def test_the_mode_may_change_while_a_trial_is_in_flight():
    world = world_of()
    assert world.verify_answers
    world.core.set_mode(Mode(1, 2, 1))
    world.run_dry()
    world.check_nothing_is_left()


# -- losses ---------------------------------------------------------------------------------


def test_a_verifier_lost_in_a_trial_leaves_nothing_and_the_next_one_is_measured():
    world = world_of()
    for _ in range(3):
        world.answer()
    world.verifier_lost()
    world.check_nothing_is_left()
    assert not world.core.trials.status().is_measuring
    assert world.core.owed_by_verifier == 0
    world.verifier_up()
    world.drafter_up()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")
    world.check_nothing_is_left()


def test_a_worker_that_dies_of_trials_is_left_alone_and_serves():
    world = TrialWorld()
    for _ in range(MAX_LOSSES):
        world.verifier_up()
        assert world.core.owed_by_verifier
        world.verifier_lost()
    num_trials = len(world.trials)
    world.verifier_up()
    world.drafter_up()
    assert world.leg_origins[0] == "live"
    world.submit("r")
    world.run_dry()
    assert world.core.counters.num_finished == {"length": 1}
    assert sum(bool(verify.rows) for _, verify in world.trials[num_trials:]) == 0


def test_a_drafter_lost_in_a_trial_does_not_hold_the_verifier_up():
    world = TrialWorld()
    world.verifier_up()
    world.run_dry()
    world.drafter_up()
    for _ in range(4):
        world.answer()
    assert world.draft_answers
    world.drafter_lost()
    assert world.leg_origins == ("trials",)
    assert world.core.trials.num_over == world.core.trials.num_planned
    world.drafter_up()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")
    world.check_nothing_is_left()


def test_a_drafter_lost_while_the_verifier_is_measured_is_not_to_blame():
    world = world_of()
    for _ in range(MAX_LOSSES + 1):
        assert world.verify_answers
        world.drafter_lost()
        world.drafter_up()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")


def test_a_drafter_that_is_swapped_in_is_measured_too():
    world = world_of()
    world.run_dry()
    old = world.source
    world.drafter_up("another draft")
    world.core.drop(old)
    world.plan()
    world.run_dry()
    assert world.leg_origins == ("trials", "trials")
    world.check_nothing_is_left()


def test_the_same_drafter_over_another_link_is_known_already():
    world = world_of()
    world.run_dry()
    num_trials = len(world.trials)
    world.drafter_lost()
    world.drafter_up()
    assert len(world.trials) == num_trials


def test_late_and_repeated_answers_of_a_drafter_change_nothing():
    world = world_of()
    while not world.draft_answers:
        world.answer()
    note = world.draft_answers[0]
    world.answer_draft()
    num_over = world.core.trials.num_over
    world.core.on_draft_result(note)
    assert world.core.trials.num_over == num_over
    assert not any(request.phase is not Phase.WAITING for request in world.core.requests.values())
