"""What is compared between a `Core` and the plain model of it, after every event and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.request import Phase
from tests.plan_checks import BUDGET

if TYPE_CHECKING:
    from tests.core_model import CoreModel


def check_core(model: CoreModel) -> None:
    """Core equals model."""
    core = model.core
    core.check()
    assert {i: (r.prompt_token_ids, r.max_tokens) for i, r in core.requests.items()} == {
        i: (w.prompt, w.max_tokens) for i, w in model.live.items()
    }
    assert all(times == 1 for times in model.ended.values()), "one end a request"
    assert core.sources.newest == max({*model.serving} - model.broken, default=0)
    _check_sources(model)
    counters = core.counters
    assert counters.num_requests == model.num_submitted == len(model.live) + len(model.ended)
    assert sum(counters.num_finished.values()) == len(model.ended)
    assert counters.num_output_tokens == model.num_outputs
    assert counters.num_stale_results == model.num_stale
    assert counters.num_accepted_tokens <= counters.num_draft_tokens
    batches = core.batch_numbers
    assert {*range(core.batches.num_batches), *model.flights} <= {*batches}
    in_flight = [model.flights[b].plan.step_id if b in model.flights else 0 for b in batches]
    assert [core.in_flight_step(b) for b in batches] == in_flight
    assert core._verifying.begun == model.order
    at = model.order[0] if model.order else model.oldest
    owed = model.flights[at].plan.step_id if model.flights else 0
    assert core.owed_by_verifier == owed
    assert core.oldest_step == min((f.plan.step_id for f in model.flights.values()), default=0)
    assert core.is_idle == (not model.live and not model.flights)
    assert counters.num_peak_blocks <= min(model.num_blocks, counters.num_peak_blocks_for_all)
    for request in core.requests.values():
        assert request.num_cached_tokens < len(request.prompt_token_ids)
    waiting = [r.arrival for r in core._table.waiting]
    assert waiting == sorted(waiting), "first come, first served"
    assert len(waiting) == core.num_waiting == len(model.live) - core.num_running
    _check_phases(model)


def _check_sources(model: CoreModel) -> None:
    core = model.core
    assert [source.source_id for source in core.sources.warming] == list(model.warming)
    for epoch, warming in model.warming.items():
        assert model.sources[epoch].is_warm == warming.is_warm
    assert {source.source_id for source in core.sources.broken} == model.broken
    assert {epoch for epoch, s in model.sources.items() if not s.is_gone} == {*model.doubles}
    for batch in core.batch_numbers:
        source = core.sources.of_batch(batch)
        assert (source.source_id if source else 0) == model.epoch_of(batch)
    for epoch, double in model.doubles.items():
        in_flight = any(flight.plan.source == epoch for flight in model.flights.values())
        assert core.uses(model.sources[epoch]) == in_flight
        told = {
            r.row_id: r.drafter_lens[epoch]
            for r in core.requests.values()
            if epoch in r.drafter_lens
        }
        knows = {row_id: len(row.history) for row_id, row in double.rows.items()}
        closing = core._table._drafter_closes.get(epoch, [])
        assert len(closing) == len(set(closing)), "closed twice"
        assert not told.keys() & set(closing)
        assert told == {r: length for r, length in knows.items() if r not in closing}
        assert set(closing) <= knows.keys()
    known = {e for r in core.requests.values() for e in r.drafter_lens}
    assert known | core._table._drafter_closes.keys() <= model.doubles.keys()


def _check_phases(model: CoreModel) -> None:
    in_step = {}
    for batch, flight in model.flights.items():
        ks = {row.row_id: row.num_draft_tokens for row in flight.plan.rows}
        for row_id, owner in flight.owners.items():
            in_step[owner] = (batch, flight, ks[row_id])
    for request_id, request in model.core.requests.items():
        batch = model.core.batches.batch_of(request_id)
        assert (request.phase is Phase.WAITING) == (batch is None)
        if request_id not in in_step:
            assert request.phase in {Phase.WAITING, Phase.PREFILLING, Phase.READY}
            continue
        step_batch, flight, k = in_step[request_id]
        assert batch == step_batch, "a request with a step in flight changed its batch"
        if request.phase is Phase.PREFILLING:
            assert k == 0
        elif k == 0:
            assert request.phase is Phase.VERIFYING
        elif not flight.drafts_in:
            assert request.phase is Phase.DRAFTING
        elif model.order[:1] == [batch]:
            assert request.phase is Phase.VERIFYING
        else:
            assert request.phase is Phase.DRAFTED


def run_dry(model: CoreModel) -> int:
    """Go on until nobody is left; say how many steps it took.

    Nobody starves: the oldest always moves, so all together cannot need much more than one
    after the other.
    """
    if model.verifier is None:
        model.bring_verifier_up()
    serial = sum(
        want.max_tokens + 1 + -(-(len(want.prompt) + want.max_tokens) // BUDGET)
        for want in model.live.values()
    )
    steps = 0
    while model.live or model.flights:
        model.rotate(
            lambda row_id, k, turn=steps: (row_id * 7 + turn) % (k + 1),
            drafts_in=steps % 2 == 0,
        )
        model.check()
        steps += 1
        assert steps <= 2 * serial + 3, "starvation"
    model.plan()
    assert model.core.is_idle
    assert model.core.blocks.num_free == model.num_blocks
    return steps
