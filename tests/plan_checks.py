"""What is asserted of the plans that a `Core` makes, against the plain model of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minedraft.services.coordinator.core.request import Phase
from minedraft.services.coordinator.core.shaper import PROBE_STEPS

if TYPE_CHECKING:
    from minedraft.plans import DraftPlan, VerifyPlan
    from minedraft.services.coordinator.core.request import Request
    from tests.core_model import CoreModel

BUDGET = 8
CONTEXT = 40


@dataclass
class Flight:
    """A step in flight."""

    plan: VerifyPlan
    owners: dict[int, str]
    blocks: set[int]
    """What the step may touch; no other may write to any of it before the step has ended."""
    written: set[int]
    """What it may write to; no other may touch any of that before the step has ended."""
    drafts_in: bool = False
    began_early: bool = False
    """The verifier began before the drafter had said that it is done."""
    decoding: frozenset[str] = frozenset()
    """Owners that are past their prefill."""


def check_plans(model: CoreModel, draft: DraftPlan | None, verify: VerifyPlan) -> Flight | None:
    """Check a step's two plans.

    Returns:
        The step; None if the plans only close rows.
    """
    wanted = {r.row_id: r.num_draft_tokens for r in verify.rows if r.num_draft_tokens}
    drafted = {} if draft is None else {r.row_id: r.num_draft_tokens for r in draft.rows}
    assert wanted == {row_id: k for row_id, k in drafted.items() if k}
    epoch = model.epoch_of(verify.batch)
    assert verify.source == (epoch if wanted else 0)
    assert draft is None or not draft.rows or draft.epoch == epoch
    if not verify.rows:
        return None
    assert verify.batch not in model.flights, "two steps of one batch in flight"
    by_row = {r.row_id: r for r in model.core.requests.values() if r.row_id}
    owners = {row.row_id: str(by_row[row.row_id].request_id) for row in verify.rows}
    assert set(owners.values()) <= set(model.core.batches.members(verify.batch))
    suspects = model.failed.keys() | _on_trial(model)
    assert len(owners) == 1 or not suspects & set(owners.values()), "not alone"
    admitted = {r.request_id for r in model.core.requests.values() if r.row_id}
    assert not model.flights or not _on_trial(model) & admitted, "beside one on trial"
    prefilled, decoding, fed = 0, set(), set()
    for row in verify.rows:
        request = by_row[row.row_id]
        if request.phase is Phase.PREFILLING:
            prefilled += row.num_feed
            assert row.num_draft_tokens == 0
        else:
            decoding.add(request.request_id)
            assert row.num_feed == 1
            k = _expected_k(model, request, epoch)
            assert row.num_draft_tokens == min(k, model.rules.short.get(row.row_id, k))
        if _is_fed(model, request, epoch):
            fed.add(row.row_id)
    assert prefilled <= BUDGET
    if draft is not None:
        known = {row_id for row_id, k in drafted.items() if not k} - {r.row_id for r in draft.opens}
        assert known == fed, "rows that a drafter is behind with are fed, one plan at a time"
        model.behind.setdefault(epoch, {}).update(dict.fromkeys(fed, True))
    assert draft is not None or not fed
    size = model.core.blocks.block_size
    tables = [(row.num_computed // size, by_row[row.row_id].block_ids) for row in verify.rows]
    blocks = {block for _, table in tables for block in table}
    written = [block for first, table in tables for block in table[first:]]
    assert len(written) == len(set(written)), "two rows write to one block"
    for flight in model.flights.values():
        assert not blocks & flight.written, "a block that a step in flight may write"
        assert not flight.blocks & set(written), "a block that a step in flight may read"
    return Flight(verify, owners, blocks, set(written), decoding=frozenset(decoding))


def check_warm_up(model: CoreModel, draft: DraftPlan, *, is_behind: bool) -> None:
    """A warming drafter is told exactly of what it lacks, or of all again if it is behind."""
    double = model.doubles[draft.epoch]
    told = {row_id: len(row.history) for row_id, row in double.rows.items()}
    k = model.core.mode.num_draft_tokens
    wanted = {
        r.row_id
        for r in model.core.requests.values()
        if r.phase is not Phase.WAITING
        and k > 0
        and model.live[r.request_id].k != 0
        and r.num_tokens < model.drafter_context
        and (is_behind or told.get(r.row_id, 0) < r.num_tokens)
    }
    assert {row.row_id for row in draft.rows} == wanted
    assert not any(row.num_draft_tokens for row in draft.rows)


def _on_trial(model: CoreModel) -> set[str]:
    return {request_id for request_id, num in model.deaths.items() if num >= 2}


def _is_fed(model: CoreModel, request: Request, epoch: int) -> bool:
    """Whether a row goes to the drafter for its committed tokens alone."""
    has_said_so = model.behind.get(epoch, {}).get(request.row_id) is False
    want = model.live[request.request_id]
    k = _shape_k(model)
    k = min(k, k if want.k is None else want.k)
    return has_said_so and k > 0 and request.num_tokens < model.drafter_context


def _shape_k(model: CoreModel) -> int:
    """The k of the shape in the step that was planned last."""
    shaper = model.core.shaper
    is_probe = shaper._num_plain and shaper._num_plain % PROBE_STEPS == 0
    return shaper.mode.num_draft_tokens if is_probe else shaper.shape.num_draft_tokens


def _expected_k(model: CoreModel, request: Request, epoch: int) -> int:
    want = model.live[request.request_id]
    if request.row_id in model.behind.get(epoch, {}):
        return 0
    length = len(want.prompt) + len(request.output_token_ids)
    k = _shape_k(model) if epoch else 0
    k = min(k, k if want.k is None else want.k)
    k = min(k, len(want.prompt) + want.max_tokens - length - 1, CONTEXT - length - 1)
    return max(min(k, model.drafter_context - length), 0)
