from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.errors import ProtocolError
from minedraft.plans import RowResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.answers import check_row, read_answer
from minedraft.services.coordinator.core.request import Event, Phase, Request
from minedraft.services.coordinator.core.step import Step
from minedraft.types import RequestId, RowError, RowId, RowParams, TokenLogprobs

GOOD = RowResult(RowId(1), 3, (7, 8, 9), 4, 2)


def request(*events: Event, num_computed: int = 0) -> Request:
    made = Request(RequestId("r"), (1, 2, 3), RowParams(), 9, num_computed=num_computed)
    for event in events:
        made.advance(event)
    return made


VOCAB = 10
DECODING = (Event.ADMIT, Event.PREFILLED, Event.DRAFT)


def test_an_answer_within_the_plan_is_taken():
    check_row(request(*DECODING), GOOD, 4, VOCAB)
    check_row(request(*DECODING), replace(GOOD, num_draft_tokens=2), 4, VOCAB)
    check_row(request(*DECODING), RowResult(RowId(1), 3, (7,)), 4, VOCAB)


@pytest.mark.parametrize(
    "change",
    [
        {"base_len": 2},
        {"base_len": 4},
        {"token_ids": ()},
        {"token_ids": (7, 8)},
        {"token_ids": (7, 8, 9, 9)},
        {"num_draft_tokens": 5},
        {"num_draft_tokens": 1},
        {"token_ids": (7, 8, 10)},
        {"token_ids": (7, -1, 9)},
    ],
    ids=str,
)
def test_an_answer_beyond_the_plan_is_refused(change):
    with pytest.raises(ProtocolError, match=r"row 1: .* committed length is 3 \(drafting\)"):
        check_row(request(*DECODING), replace(GOOD, **change), 4, VOCAB)


@pytest.mark.parametrize("events", [DECODING, (Event.ADMIT,)])
def test_a_row_that_cannot_go_on_has_no_tokens_and_no_counts(events):
    error = RowResult(RowId(1), 3, (), error=RowError.NON_FINITE)
    check_row(request(*events), error, 4, VOCAB)
    for change in ({"base_len": 2}, {"token_ids": (7,)}, {"num_draft_tokens": 2**32 - 1}):
        with pytest.raises(ProtocolError):
            check_row(request(*events), replace(error, **change), 4, VOCAB)


def test_a_chunk_of_a_prompt_gives_no_token_and_its_end_gives_one():
    chunk, end = RowResult(RowId(1), 3, ()), RowResult(RowId(1), 3, (7,))
    check_row(request(Event.ADMIT, num_computed=2), chunk, 0, VOCAB)
    check_row(request(Event.ADMIT, num_computed=3), end, 0, VOCAB)
    with pytest.raises(ProtocolError, match=Phase.PREFILLING.value):
        check_row(request(Event.ADMIT, num_computed=2), end, 0, VOCAB)
    with pytest.raises(ProtocolError):
        check_row(request(Event.ADMIT, num_computed=3), chunk, 0, VOCAB)


def test_log_probabilities_come_one_a_token_if_asked_for():
    asked = request(*DECODING)
    asked.params = RowParams(logprobs=0)
    with pytest.raises(ProtocolError):
        check_row(asked, GOOD, 4, VOCAB)
    entries = tuple(TokenLogprobs(token, -1.0) for token in GOOD.token_ids)
    check_row(asked, replace(GOOD, logprobs=entries), 4, VOCAB)


def step_of(*requests: Request) -> Step:
    rows = {RowId(i + 1): request for i, request in enumerate(requests)}
    return Step(1, 0, rows, dict.fromkeys([*rows, RowId(9)], 4))


def answer(*rows: RowResult) -> VerifyResult:
    return VerifyResult(1, 0, rows, StepTiming())


def test_an_answer_is_summed_up_over_all_rows_and_paired_with_those_that_live():
    live = request(*DECODING), request(*DECODING)
    refused, kept_all = GOOD, RowResult(RowId(2), 3, (7, 8), 1, 1)
    ended = RowResult(RowId(9), 30, (1,), 3, 0)
    read = read_answer(step_of(*live), answer(refused, ended, kept_all), VOCAB)
    assert read.rows == [(live[0], refused), (live[1], kept_all)]
    assert (read.num_drafts, read.num_draft_tokens) == (3, 8)
    assert (read.num_accepted_tokens, read.num_refused_tokens) == (3, 2)
    assert read.num_broken_rows == 0


def test_rows_of_whose_drafts_none_was_verified_were_offered():
    live = request(*DECODING), request(*DECODING)
    none, some = RowResult(RowId(1), 3, (7,)), RowResult(RowId(2), 3, (7, 8), 1, 1)
    result = replace(answer(none, some, RowResult(RowId(9), 30, (1,))), num_stale_drafts=1)
    read = read_answer(step_of(*live), result, VOCAB)
    assert (read.num_drafts, read.num_offered) == (1, 2)


def test_rows_that_cannot_go_on_and_chunks_of_prompts_have_no_drafts():
    error = RowResult(RowId(1), 3, (), error=RowError.NON_FINITE)
    chunk = RowResult(RowId(2), 3, ())
    step = step_of(request(*DECODING), request(Event.ADMIT, num_computed=2))
    read = read_answer(step, answer(error, chunk), VOCAB)
    assert [row for _, row in read.rows] == [error, chunk]
    assert (read.num_drafts, read.num_broken_rows) == (0, 1)


def test_an_answer_that_leaves_a_row_out_is_refused():
    step = step_of(request(*DECODING), request(*DECODING))
    with pytest.raises(ProtocolError, match=r"step 1: rows \[2\] are missing"):
        read_answer(step, answer(GOOD), VOCAB)
