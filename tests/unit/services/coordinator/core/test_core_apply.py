"""What the core makes of a verify result, and what a driver of it needs to write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.plans import RowResult, StepTiming, VerifyResult
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.draft_source import DraftSource
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, ModelInfo, RequestId, RowError, RowParams
from tests.core_model import CoreModel
from tests.worker_doubles import continuation

PSD = Mode(2, 4, 4)


def all_of_it(_request, row) -> Kept:
    return Kept(len(row.token_ids))


def decoding(*names_and_lengths: int) -> tuple[CoreModel, VerifyResult]:
    """Requests in one batch that decode, and the answer to their step."""
    model = CoreModel(Mode(1, 4, 2))
    for max_tokens in names_and_lengths:
        model.submit((1, 2), max_tokens)
    for _ in range(2):
        model.rotate()
    model.plan()
    model.work()
    return model, model.answers.popleft()


def test_a_simulator_is_a_short_loop():
    core = Core(PSD)
    core.verifier_up(ModelInfo("t", 50, 200, "f", "float32", block_size=4, num_blocks=100))
    core.serve(DraftSource(1, ModelInfo("d", 50, 200, "f", "float32")))
    requests = [Request(RequestId(f"r{i}"), (1, 2, 3), RowParams(), 10) for i in range(6)]
    for request in requests:
        core.submit(request)

    def keep(request, row):
        num_left = request.max_tokens - len(request.output_token_ids)
        return Kept(len(row.token_ids), "length" if len(row.token_ids) >= num_left else None)

    steps = []
    while not core.is_idle:
        steps += [verify for _draft, verify in core.plan() if verify.rows]
        step = steps.pop(0)
        rows = tuple(
            RowResult(
                r.row_id, r.base_len, (7,) * (r.num_draft_tokens + 1), *[r.num_draft_tokens] * 2
            )
            for r in step.rows
        )
        core.apply(VerifyResult(step.step_id, step.batch, rows, StepTiming()), keep)
    assert [request.output_token_ids for request in requests] == [[7] * 10] * 6
    assert core.counters.num_finished == {"length": 6}
    assert core.counters.num_output_tokens == 60
    assert core.blocks.num_used == 0


def test_only_what_is_kept_is_committed_and_a_reason_ends_the_request():
    model, result = decoding(20, 20)
    first, second = model.core.requests.values()
    before = first.num_tokens
    outcomes = model.core.apply(
        result, lambda request, _row: Kept(2, "stop") if request is first else Kept(3)
    )
    assert [(o.request, o.failure) for o in outcomes] == [(first, None), (second, None)]
    assert (first.num_tokens, second.num_tokens) == (before + 2, before + 3)
    assert first.is_finished
    assert list(model.core.requests.values()) == [second]
    assert model.core.counters.num_finished == {"stop": 1}


@pytest.mark.parametrize("where", [0, 1])
def test_a_driver_that_fails_ends_that_request_and_no_other(where):
    model, result = decoding(20, 20)
    requests = list(model.core.requests.values())
    bad, good = requests[where], requests[1 - where]
    before = bad.num_tokens

    def keep(request, row):
        if request is bad:
            raise KeyError("the user's words")
        return all_of_it(request, row)

    outcomes = model.core.apply(result, keep)
    failures = {o.request.request_id: o.failure for o in outcomes}
    assert isinstance(failures[bad.request_id], KeyError)
    assert failures[good.request_id] is None
    assert bad.is_finished
    assert bad.num_tokens == before, "nothing of it is committed"
    assert good.output_token_ids == continuation((1, 2), len(good.output_token_ids))
    assert model.core.counters.num_finished == {"error": 1}
    model.core.check()


def test_a_row_with_an_error_ends_its_request_and_the_driver_is_not_asked():
    model, result = decoding(20, 20)
    bad, good = model.core.requests.values()
    broken = RowResult(bad.row_id, bad.num_tokens, (), error=RowError.NON_FINITE)
    asked = []

    def keep(request, row):
        asked.append(request)
        return all_of_it(request, row)

    outcomes = model.core.apply(replace(result, rows=(broken, result.rows[1])), keep)
    assert [(o.request, o.row, o.failure) for o in outcomes] == [
        (bad, broken, None),
        (good, result.rows[1], None),
    ]
    assert asked == [good]
    assert bad.is_finished
    assert model.core.counters.num_broken_rows == 1


def test_a_chunk_of_a_prompt_is_nothing_to_ask_about():
    model = CoreModel(Mode(1, 4, 2))
    model.submit(tuple(range(20)), 5)
    model.plan()
    model.work()

    def keep(_request, _row):
        raise AssertionError("there are no tokens")

    assert model.core.apply(model.answers.popleft(), keep) == []
