from __future__ import annotations

import pytest

from minedraft.api import SpeculationStats
from minedraft.errors import StateError
from minedraft.services.coordinator.core.request import (
    TRANSITIONS,
    Event,
    Phase,
    Request,
)
from minedraft.types import RequestId, RowId, RowParams


def request(prompt=(1, 2, 3), output=(), phase=Phase.WAITING, max_tokens=10) -> Request:
    made = Request(RequestId("r7"), tuple(prompt), RowParams(), max_tokens)
    made.go_on_from(list(output))
    made.phase = phase
    return made


@pytest.mark.parametrize(("phase", "num_failed"), [(Phase.PREFILLING, 2), (Phase.VERIFYING, 0)])
def test_decoding_clears_a_request_of_the_verifiers_failures_and_prefilling_does_not(
    phase, num_failed
):
    live = request(phase=phase)
    live.num_failed_steps = 2
    live.commit((7,))
    assert live.num_failed_steps == num_failed


def test_every_phase_has_a_row():
    assert set(TRANSITIONS) == set(Phase)


def test_every_phase_can_be_reached():
    reached, todo = {Phase.WAITING}, [Phase.WAITING]
    while todo:
        new = set(TRANSITIONS[todo.pop()].values()) - reached
        reached |= new
        todo += new
    assert reached == set(Phase)


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.FINISHED])
def test_a_request_can_end_in_every_phase(phase):
    live = request(phase=phase)
    live.advance(Event.FINISH)
    assert live.is_finished


@pytest.mark.parametrize("phase", [p for p in Phase if p not in {Phase.FINISHED, Phase.WAITING}])
def test_an_admitted_request_can_lose_its_place_in_every_phase(phase):
    live = request(phase=phase)
    live.advance(Event.PREEMPT)
    assert live.phase is Phase.WAITING


@pytest.mark.parametrize("event", list(Event))
def test_nothing_happens_after_the_end(event):
    with pytest.raises(StateError, match=f"request r7: {event.name} is not allowed in FINISHED"):
        request(phase=Phase.FINISHED).advance(event)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("event", list(Event))
def test_what_the_table_lacks_is_refused_and_changes_nothing(phase, event):
    live = request(phase=phase)
    if event in TRANSITIONS[phase]:
        live.advance(event)
        assert live.phase is TRANSITIONS[phase][event]
    else:
        with pytest.raises(StateError, match=f"{event.name} is not allowed in {phase.name}"):
            live.advance(event)
        assert live.phase is phase


def test_one_round_of_speculation():
    live = request()
    seen = []
    for event in (
        Event.ADMIT,
        Event.PREFILLED,
        Event.DRAFT,
        Event.DRAFTS_IN,
        Event.VERIFY,
        Event.COMMIT,
    ):
        live.advance(event)
        seen.append(live.phase)
    assert seen == [
        Phase.PREFILLING,
        Phase.READY,
        Phase.DRAFTING,
        Phase.DRAFTED,
        Phase.VERIFYING,
        Phase.READY,
    ]


@pytest.mark.parametrize("start", range(8))
def test_tail_is_a_slice_of_prompt_and_output(start):
    live = request(prompt=(1, 2, 3), output=(4, 5))
    assert live.tail(start) == (1, 2, 3, 4, 5)[start:]


def test_lengths_count_prompt_and_output():
    live = request(prompt=(1, 2, 3), output=(4, 5), max_tokens=9)
    assert live.num_tokens == 5
    assert live.max_len == 12


@pytest.mark.parametrize("phase", [Phase.DRAFTING, Phase.DRAFTED, Phase.VERIFYING])
def test_committed_tokens_have_kv_except_the_last(phase):
    live = request(prompt=(1, 2), output=(3,), phase=phase)
    live.commit((4, 5, 6))
    assert live.phase is Phase.READY
    assert live.output_token_ids == [3, 4, 5, 6]
    assert live.num_computed == 5


def test_the_first_commit_ends_the_prefill():
    live = request(prompt=(1, 2), phase=Phase.PREFILLING)
    live.commit((3,))
    assert live.phase is Phase.READY
    assert live.num_computed == 2


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.READY, Phase.FINISHED])
def test_a_commit_without_a_step_is_refused_and_keeps_the_tokens_out(phase):
    live = request(phase=phase)
    with pytest.raises(StateError):
        live.commit((4,))
    assert live.output_token_ids == []


def test_worker_state_is_forgotten_and_the_tokens_stay():
    live = request(output=(9,), phase=Phase.READY)
    live.row_id, live.block_ids, live.num_blocks_sent = RowId(3), [1, 2], 2
    live.num_computed, live.verifier_len, live.drafter_lens = 3, 4, {1: 4}
    live.reset_worker_state()
    assert (live.row_id, live.block_ids, live.num_blocks_sent) == (0, [], 0)
    assert (live.num_computed, live.verifier_len, live.drafter_lens) == (0, 0, {})
    assert live.tail(0) == (1, 2, 3, 9)


def test_stats_count_every_step_and_a_histogram_of_those_with_drafts():
    counted = request()
    for drafts, accepted in ((0, 0), (4, 2), (2, 2), (4, 0), (4, 4)):
        counted.observe(drafts, accepted)
    assert counted.stats.total() == SpeculationStats(
        num_drafts=4,
        num_draft_tokens=14,
        num_accepted_tokens=8,
        num_steps=5,
        acceptance_histogram=(1, 0, 2, 0, 1),
    )
