from __future__ import annotations

import pytest

from minedraft.plans import MAX_ROWS
from minedraft.services.coordinator.core import trial_plans
from minedraft.services.coordinator.core.trial_plans import Trial, draft_trials, verify_trials
from minedraft.types import Mode, RowId


def test_verify_sizes_cover_one_to_all_slots_with_and_without_drafts():
    sizes = {trial.verify_rows for trial in verify_trials(Mode(2, 8, 4)) if trial.num_tokens == 1}
    assert sizes == {1, 2, 4, 8, 16, 5, 10, 20, 40, 80}


def test_draft_sizes_cover_one_to_all_slots_with_one_draft_and_with_k():
    trials = [trial for trial in draft_trials(Mode(2, 3, 4)) if not trial.verify_rows and trial.k]
    assert {(trial.draft_rows, trial.k) for trial in trials} == {
        (rows, k) for rows in (1, 2, 4, 6) for k in (1, 4)
    }


def test_each_size_is_tried_at_least_twice_and_small_ones_first():
    for trials in (verify_trials(Mode(2, 8, 4)), draft_trials(Mode(2, 8, 4))):
        plain = [trial for trial in trials if trial.num_tokens == 1]
        assert all(plain.count(trial) >= 2 for trial in plain)
        assert plain[0].num_rows == 1


@pytest.mark.parametrize("mode", [Mode(8, 1024, 32), Mode(1, 1, 0), Mode(1, 1024, 4)], ids=str)
def test_their_number_and_size_is_bounded_for_every_mode(mode):
    trials = verify_trials(mode) + draft_trials(mode)
    assert len(trials) < 150
    assert max(trial.verify_rows for trial in trials) <= MAX_ROWS


def test_plans_open_the_rows_that_they_step_and_share_the_blocks():
    trial = Trial(verify_rows=3, draft_rows=2, k=4, num_tokens=5)
    opened = trial_plans.opens(trial, [RowId(i) for i in (7, 8, 9)], vocab_size=50)
    verify = trial_plans.verify_plan(trial, 1, 0, opened, [10, 11, 12, 13, 14, 15])
    assert [row.new_block_ids for row in verify.rows] == [(10, 11), (12, 13), (14, 15)]
    assert {row.num_feed for row in verify.rows} == {row.base_len for row in verify.rows} == {5}
    assert [row.row_id for row in verify.opens] == [row.row_id for row in verify.rows] == [7, 8, 9]
    assert not verify.source
    draft = trial_plans.draft_plan(trial, 1, 0, opened, source=6)
    assert draft.is_trial
    assert draft.epoch == 6
    assert [row.row_id for row in draft.opens] == [row.row_id for row in draft.rows] == [7, 8]
    assert all(0 <= token < 50 for row in opened for token in row.prompt_token_ids)
    assert len({row.prompt_token_ids for row in opened}) == 3, "they differ"
