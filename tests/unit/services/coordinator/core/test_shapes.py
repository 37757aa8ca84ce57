from __future__ import annotations

import heapq

import pytest

from minedraft.services.coordinator.core.shapes import (
    Load,
    Shape,
    predict_ns,
    step_ns,
    tokens_per_step,
)


class Table:
    """Costs by a formula, and what was asked of them."""

    def __init__(self, verify=lambda tokens, rows: 10 * tokens, draft=lambda rows: 4 * rows):
        self.verify, self.draft = verify, draft
        self.asked = []

    def verify_ns(self, num_tokens, num_rows, context, *, overlapped):
        self.asked.append(("verify", num_tokens, num_rows, context, overlapped))
        return self.verify(num_tokens, num_rows)

    def draft_ns(self, rows_per_depth, num_catch_up_tokens, context, *, overlapped):
        self.asked.append(("draft", rows_per_depth, num_catch_up_tokens, context, overlapped))
        return self.draft(sum(rows_per_depth))


def simulated(num_batches, num_drafters, verify_ns, draft_ns, num_steps=600):
    """Devices that run their work first in, first out: time per verify step in the long run."""
    drafters = [0.0] * num_drafters
    verifier, ends = 0.0, []
    ready = [(0.0, batch) for batch in range(num_batches)]
    queue = []
    while len(ends) < num_steps:
        while ready:
            at, batch = heapq.heappop(ready)
            drafter = batch % num_drafters
            drafters[drafter] = max(drafters[drafter], at) + draft_ns
            heapq.heappush(queue, (drafters[drafter], batch))
        at, batch = heapq.heappop(queue)
        verifier = max(verifier, at) + verify_ns
        ends.append(verifier)
        heapq.heappush(ready, (verifier, batch))
    half = num_steps // 2
    return (ends[-1] - ends[half - 1]) / (num_steps - half)


@pytest.mark.parametrize(
    ("num_batches", "num_drafters"),
    [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (2, 3), (3, 3)],
)
@pytest.mark.parametrize("draft_ns", [2.0, 9.0, 10.0, 15.0, 40.0])
def test_the_formula_is_what_devices_do(num_batches, num_drafters, draft_ns):
    want = simulated(num_batches, num_drafters, 10.0, draft_ns)
    assert step_ns(num_batches, num_drafters, 10.0, draft_ns) == pytest.approx(want, rel=0.02)


@pytest.mark.parametrize(("num_batches", "num_drafters"), [(3, 2), (4, 3)])
@pytest.mark.parametrize("draft_ns", [2.0, 9.0, 10.0, 15.0, 40.0])
def test_drafters_with_unequal_work_are_no_slower_than_the_formula(
    num_batches, num_drafters, draft_ns
):
    """The batch of the less busy one steps more often."""
    took = simulated(num_batches, num_drafters, 10.0, draft_ns)
    assert step_ns(num_batches, num_drafters, 10.0, draft_ns) >= took * 0.98


def test_a_third_batch_pays_only_with_a_second_drafter():
    assert step_ns(2, 1, 10, 15) == step_ns(3, 1, 10, 15) == 15
    assert step_ns(2, 2, 10, 15) == 12.5
    assert step_ns(3, 2, 10, 15) == 10


LOAD = Load(8, 800, (8, 8, 6))


def test_a_batch_has_its_share_of_rows_drafts_and_context():
    costs = Table()
    predict_ns(Shape(2, 3), LOAD, 1, costs)
    # 8 committed tokens and 22 drafts; each leg overlaps the other for as long as that takes
    assert costs.asked == [
        ("verify", 15, 4, 400, 0),
        ("draft", (4, 4, 3), 4, 400, 0),
        ("verify", 15, 4, 400, pytest.approx(44 / 150)),
        ("draft", (4, 4, 3), 4, 400, 1.0),
    ]


def test_one_batch_has_nothing_that_overlaps():
    costs = Table()
    assert predict_ns(Shape(1, 3), LOAD, 1, costs) == 10 * 30 + 4 * 22
    assert {ask[-1] for ask in costs.asked} == {0}


@pytest.mark.parametrize("load", [LOAD, Load(8, 800, ())])
def test_plain_decoding_feeds_one_token_per_request(load):
    costs = Table()
    assert predict_ns(Shape(1, 0), load, 1, costs) == 80
    assert costs.asked == [("verify", 8, 8, 800, 0)]


@pytest.mark.parametrize("leg", ["verify", "draft"])
def test_what_is_unknown_has_no_price(leg):
    costs = Table(**{leg: lambda *_: None})
    assert predict_ns(Shape(2, 3), LOAD, 1, costs) is None


def test_requests_that_do_not_draft_give_one_token():
    load = Load(8, 0, (6, 6))
    assert tokens_per_step(Shape(1, 2), load, 1.5) == 8 + 6 * 1.5
    assert tokens_per_step(Shape(2, 2), load, 1.5) == (8 + 6 * 1.5) / 2
    assert tokens_per_step(Shape(1, 0), load, 1.5) == 8
