from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from minedraft import errors
from minedraft.api import Delta, Finished, Started, Usage
from minedraft.bench import load
from minedraft.bench.load import Job, run_load
from minedraft.client import Client
from minedraft.types import FinishReason
from tests.fake_coordinator import FakeCoordinator


async def test_records_come_in_the_order_of_the_jobs(client: Client):
    jobs = [Job(f"p{i}", max_tokens=1 + i % 3) for i in range(9)]
    records = await run_load(client, jobs, num_resident=4)
    assert [len(record.token_ids) for record in records] == [1 + i % 3 for i in range(9)]
    assert all(0 <= record.ttft_s <= record.e2e_s for record in records)
    assert records[0].tpot_s == 0


async def test_the_worst_gap_is_between_two_arrivals_of_tokens(
    client: Client, fake: FakeCoordinator, monkeypatch
):
    deltas = [Delta(0, (1,), "a"), Delta(0, (2,), "b"), Delta(0, (), "c"), Delta(0, (3,), "d")]
    fake.events = lambda _request: [
        Started("r", 1, 1),
        *deltas,
        Finished(0, FinishReason.LENGTH, usage=Usage(1, 3)),
    ]
    # The load begins, sent, three deltas with tokens, the end.
    times = iter((-3.0, 0.0, 1.0, 2.0, 5.0, 9.5))
    monkeypatch.setattr(load, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    (record,) = await run_load(client, [Job("p", 3)], num_resident=1)
    assert (record.ttft_s, record.worst_gap_s, record.e2e_s) == (1.0, 3.0, 9.5)


async def test_the_loop_keeps_just_so_many_requests_live(client: Client, fake: FakeCoordinator):
    seen: list[int] = []
    live: set[int] = set()
    full = asyncio.Event()
    plain = fake._events

    async def counting(request):
        live.add(id(request))
        seen.append(len(live))
        if len(live) == 3:
            full.set()
        await full.wait()
        async for event in plain(request):
            if isinstance(event, Finished):  # the client may ask anew before this call has ended
                live.discard(id(request))
            yield event

    fake._events = counting
    await run_load(client, [Job(f"p{i}", 3) for i in range(12)], num_resident=3)
    assert max(seen) == 3
    assert len(seen) == 12


async def test_the_first_failure_aborts_the_other_requests(client: Client, fake: FakeCoordinator):
    fake.gate = asyncio.Event()
    jobs = [Job("a", 50), Job("b", max_tokens=-1)]
    with pytest.raises(errors.InvalidRequestError, match="max_tokens=-1"):
        await run_load(client, jobs, num_resident=2, on_tokens=lambda _num: None)
    assert fake.num_live == 0 or await asyncio.wait_for(fake.cancelled.wait(), 5)


async def test_text_is_reported_with_its_job(client: Client):
    texts = {0: "", 1: ""}

    def on_text(job: int, text: str) -> None:
        texts[job] += text

    records = await run_load(client, [Job("a", 4), Job("b", 4)], num_resident=2, on_text=on_text)
    assert [texts[0], texts[1]] == [record.text for record in records]
