from __future__ import annotations

from dataclasses import replace

import pytest

from minedraft.plans import RowResult
from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.core import Core
from minedraft.services.coordinator.core.outcome import Kept
from minedraft.services.coordinator.core.request import Request
from minedraft.types import Mode, RequestId, RowError, RowParams
from tests.core_model import BLOCK, CoreModel
from tests.worker_doubles import VerifierDouble

LONG = tuple(range(40))


class Served:
    """A core without drafters, and a verifier that checks its plans.

    Args:
        mode: Of the core.
        num_blocks: Blocks of the verifier.
    """

    def __init__(self, mode=Mode(2, 8, 0), num_blocks=200, **options) -> None:  # noqa: B008
        self.core = Core(mode, prefill_budget_tokens=16, **options)
        self.verifier = VerifierDouble(num_blocks=num_blocks, block_size=BLOCK, max_model_len=500)
        self.core.verifier_up(self.verifier.info)
        self.num_submitted = 0

    def submit(self, prompt, count=1, max_tokens=4, **options) -> list[Request]:
        made = []
        for _ in range(count):
            self.num_submitted += 1
            name = RequestId(f"r{self.num_submitted}")
            made.append(Request(name, tuple(prompt), RowParams(), max_tokens, **options))
        self.core.submit(*made)
        return made

    def plan(self):
        plans = [verify for _, verify in self.core.plan()]
        for plan in plans:
            self.verifier.receive(plan)
        self.core.check()
        return [plan for plan in plans if plan.rows]

    def answer(self, pick=0, error=None):
        def keep(request, row):
            num_output = len(request.output_token_ids) + len(row.token_ids)
            return Kept(len(row.token_ids), "length" if num_output >= request.max_tokens else None)

        result = self.verifier.run(pick=pick)
        assert result is not None
        if error is not None:
            rows = (RowResult(row.row_id, row.base_len, (), error=error) for row in result.rows)
            result = replace(result, rows=tuple(rows))
        self.core.apply(result, keep)
        self.core.check()

    def run(self) -> int:
        """Until nothing is live; return the committed tokens that were fed."""
        before = self.verifier.num_fed
        while not self.core.is_idle:
            self.plan()
            self.answer()
        return self.verifier.num_fed - before


def fed(plans) -> dict[int, int]:
    return {row.row_id: row.num_feed for plan in plans for row in plan.rows}


def test_samples_of_one_prompt_cost_one_prefill():
    alone = Served()
    alone.submit(range(160), max_tokens=1)
    together = Served()
    together.submit(range(160), 8, max_tokens=1)
    assert together.run() == alone.run() + 7 * BLOCK


def test_of_two_batches_with_the_same_next_block_one_feeds_and_the_other_waits():
    served = Served(Mode(2, 1, 0))
    served.submit(LONG, 2)
    assert fed(served.plan()) == {1: 16}
    assert served.plan() == [], "batch 1 waits for the step in flight"
    served.answer()
    assert fed(served.plan()) == {1: 16}
    served.answer()
    served.plan()
    served.answer()
    assert fed(served.plan()) == {1: 1, 2: BLOCK}


def test_of_one_batch_the_others_leave_the_budget_to_those_behind_them():
    served = Served(Mode(1, 3, 0))
    served.submit(range(8), 2)
    served.submit(range(100, 108))
    assert fed(served.plan()) == {1: 8, 3: 8}
    served.answer()
    assert fed(served.plan())[2] == BLOCK, "its last token is in the block that it may not share"


def test_what_is_in_flight_is_not_relied_on():
    """The verifier may run a younger plan of another batch first."""
    served = Served(Mode(2, 1, 0))
    served.submit(LONG[:9])
    served.plan()
    served.submit(LONG[:9])
    assert served.plan() == []
    served.answer()
    assert {plan.batch: plan.rows[0].num_computed for plan in served.plan()} == {0: 9, 1: 8}


def test_a_step_that_others_overtake_for_long_is_waited_for_no_more():
    served = Served(Mode(3, 1, 0))
    served.submit((49, 48), max_tokens=50)
    served.submit(LONG)
    served.submit(LONG)
    plans = served.plan()
    assert [plan.batch for plan in plans] == [0, 1]
    for turn in range(8):
        assert len(plans) == (2 if turn == 0 else 1)
        served.answer(pick=min(turn, 1))  # the first one's; the second's drafts never come
        plans = served.plan()
    assert [plan.batch for plan in plans] == [0, 2]
    assert fed(plans)[3] == 16


def test_a_step_whose_request_ends_is_waited_for_until_it_ends_and_then_fed_by_another():
    served = Served(Mode(2, 1, 0))
    first, _ = served.submit(LONG, 2)
    served.plan()
    served.core.finish(first.request_id, "abort")
    assert served.plan() == []
    served.answer()
    assert fed(served.plan()) == {2: 16}


def test_a_lost_verifier_takes_the_cache_with_it():
    served = Served()
    served.submit(LONG)
    served.run()
    assert served.core.blocks.num_cached > 0
    waiting = served.submit(LONG, 2)
    served.plan()
    served.core.verifier_lost()
    assert served.core.blocks.num_cached == 0
    served.verifier = VerifierDouble(num_blocks=90, block_size=2, max_model_len=500)
    served.core.verifier_up(served.verifier.info)  # its blocks have another size
    assert served.run() <= 1.3 * len(LONG) + 8
    assert all(request.is_finished for request in waiting)


def test_a_preempted_request_finds_what_was_not_evicted():
    served = Served(Mode(1, 2, 0), num_blocks=16)
    old, young = served.submit(range(20), 1, 30), served.submit(range(60, 80), 1, 30)
    num_fed = served.run()
    assert served.core.counters.num_preemptions > 0
    assert (old[0].num_cached_tokens, young[0].num_cached_tokens) == (0, 0), "it was its own"
    hits = served.core.counters.num_prefix_hit_tokens
    assert hits > 0
    without = Served(Mode(1, 2, 0), num_blocks=16, prefix_cache=False)
    without.submit(range(20), 1, 30)
    without.submit(range(60, 80), 1, 30)
    assert without.run() >= num_fed + hits
    assert without.core.counters.num_prefix_hits == without.core.blocks.num_cached == 0


@pytest.mark.parametrize("is_aborted", [False, True])
def test_what_a_row_without_numbers_published_is_withdrawn(is_aborted):
    served = Served()
    (request,) = served.submit(LONG)
    served.plan()
    served.answer()
    served.plan()
    if is_aborted:
        served.core.finish(request.request_id, "abort")
    served.answer(error=RowError.NON_FINITE)
    assert served.core.is_idle
    assert served.core.blocks.num_cached == 0
    served.submit(LONG)
    assert served.run() == len(LONG) + 3


def test_what_one_that_left_had_published_stays():
    served = Served()
    (request,) = served.submit(LONG)
    served.plan()
    served.answer()
    served.plan()
    served.core.finish(request.request_id, "abort")
    served.answer()
    assert served.core.blocks.num_cached == 4, "of the first chunk: the second was in flight"


def test_salts_keep_requests_apart():
    served = Served()
    for salt in ("", "a", "b"):
        (request,) = served.submit(LONG, cache_salt=salt)
        served.run()
        assert request.num_cached_tokens == 0
    (request,) = served.submit(LONG, cache_salt="a")
    served.run()
    assert request.num_cached_tokens == 36


def test_two_rows_that_compute_the_same_block_in_one_step_keep_one_each():
    model = CoreModel(Mode(1, 2, 0))
    model.submit((1,), 8)
    model.submit((1,), 8)  # alike, also in what they decode
    model.run_dry()
    assert model.outputs["r0"] == model.outputs["r1"]
    assert model.core.blocks.num_cached == 2


def test_cached_blocks_leave_no_request_waiting():
    served = Served(num_blocks=12)
    for start in range(0, 300, 50):
        served.submit(range(start, start + 40))
        served.run()
    counters = served.core.counters
    assert (counters.num_preemptions, served.core.blocks.num_used) == (0, 0)
    assert counters.num_evicted_blocks > 0


def test_a_hit_counts_what_it_takes_from_the_free_blocks():
    served = Served(Mode(1, 2, 0), num_blocks=13)
    served.submit(LONG)  # eleven blocks, ten of which stay cached
    served.run()
    assert served.core.blocks.num_cached == 10
    big, late = served.submit(LONG, 2)
    served.plan()
    assert len(big.block_ids) == 10
    assert not late.block_ids, "nine of its blocks are there, but four that it may need are not"
    served.run()
    assert late.num_cached_tokens == 36


def test_keys_are_hashed_once(monkeypatch):
    from minedraft.services.coordinator.core import prefixes

    num_hashed, extend = 0, prefixes.extend_keys

    def count(keys, token_ids, *args, **kwargs):
        nonlocal num_hashed
        num_hashed += len(token_ids)
        extend(keys, token_ids, *args, **kwargs)

    monkeypatch.setattr(prefixes, "extend_keys", count)
    served = Served(Mode(1, 2, 0), num_blocks=16)
    served.submit(range(20), 1, 30)
    served.submit(range(60, 80), 1, 30)
    served.run()
    assert served.core.counters.num_preemptions > 0
    assert num_hashed == 2 * 48


def test_a_pool_that_is_replaced_keeps_the_count_of_evictions():
    served = Served(num_blocks=12)
    for start in (0, 50):
        served.submit(range(start, start + 40))
        served.run()
    before = served.core.counters.num_evicted_blocks
    assert before > 0
    served.core._table.use(PrefixCache(5, BLOCK))
    assert served.core.counters.num_evicted_blocks == before
