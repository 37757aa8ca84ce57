from __future__ import annotations

from minedraft.prefix import PrefixCache
from minedraft.services.coordinator.core.request import Event, Request
from minedraft.services.coordinator.core.reserved import Reserved
from minedraft.types import RequestId, RowParams


def decoding(num_tokens: int, blocks: PrefixCache) -> Request:
    request = Request(RequestId("r"), (1,) * (num_tokens - 1), RowParams(), 50)
    request.advance(Event.ADMIT)
    request.commit((2,))
    request.block_ids = blocks.allocate(blocks.blocks_for(num_tokens))
    return request


def test_a_peak_stays_and_is_beside_what_drafts_of_all_would_have_taken():
    blocks, reserved = PrefixCache(20, 4), Reserved()
    requests = [decoding(4, blocks), decoding(6, blocks)]
    reserved.look(blocks, requests, 2)
    assert (reserved.peak, reserved.peak_for_all) == (3, 4)
    blocks.free(requests.pop().block_ids)
    reserved.look(blocks, requests, 9)
    assert (reserved.peak, reserved.peak_for_all) == (3, 4), "no new peak"


def test_requests_that_wait_or_prefill_draft_nothing():
    blocks, reserved = PrefixCache(20, 4), Reserved()
    waiting = Request(RequestId("r"), (1,) * 40, RowParams(), 50)
    reserved.look(blocks, [waiting, decoding(4, blocks)], 1)
    assert (reserved.peak, reserved.peak_for_all) == (1, 2)
