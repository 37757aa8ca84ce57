"""Any one service goes and comes back under load: nothing is lost, repeated or changed."""

from __future__ import annotations

import asyncio

import pytest

from minedraft.client import Client, RetryPolicy
from minedraft.errors import DrainingError, IncompatibleWorkerError, WorkerUnavailableError
from minedraft.types import FinishReason
from tests.integration.cluster import cluster, until_status, until_up
from tests.integration.conftest import gather
from tests.tiny_models import make_tiny_llama

PROMPTS = [list(range(5, 6 + 5 * i)) for i in range(8)]
NUM_TOKENS = 80
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 5}
PATIENT = RetryPolicy(first_delay_s=0.02, max_delay_s=0.1)


async def load(client, **options):
    options = options or {"temperature": 0}
    return await gather(
        *(
            client.generate(prompt, max_tokens=NUM_TOKENS, ignore_eos=True, **options)
            for prompt in PROMPTS
        )
    )


@pytest.fixture(scope="module")
def expected(plain_greedy):
    return [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]


async def seeded(target_dir):
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        return [r.token_ids for r in await load(c.client, **SEEDED)]


def tokens(results):
    return [r.token_ids for r in results]


async def some_output(client, num_tokens=40):
    start = (await client.status()).counters.num_output_tokens
    await until_status(client, lambda s: s.counters.num_output_tokens >= start + num_tokens)


async def test_a_drafter_goes_and_returns(target_dir, draft_dir, expected):
    async with cluster(target_dir, target_dir, kind="oracle", link="grpc") as c:
        running = asyncio.create_task(load(c.client))
        await some_output(c.client)
        await c.drafters[0].stop()
        await some_output(c.client)  # it goes on without
        returned = c.drafters[0].again()
        await returned.start()
        c.drafters[0] = returned
        await until_up(c.client, with_drafter=True)
        assert tokens(await running) == expected
        again = await load(c.client)
        assert tokens(again) == expected
        assert all(r.speculation.acceptance_rate == 1.0 for r in again)


@pytest.mark.parametrize("options", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
async def test_a_verifier_goes_and_returns(target_dir, draft_dir, expected, options):
    wanted = expected if options["temperature"] == 0 else await seeded(target_dir)
    async with cluster(target_dir, draft_dir, link="grpc") as c:
        running = asyncio.create_task(load(c.client, **options))
        await some_output(c.client)
        await c.verifier.stop()
        status = await until_status(c.client, lambda s: s.num_running == 0)
        assert status.num_waiting == len(PROMPTS)
        c.verifier = c.verifier.again()
        await c.verifier.start()
        assert tokens(await running) == wanted
        assert (await c.client.status()).num_blocks_used == 0


async def test_a_verifier_that_returns_with_another_model_is_refused(target_dir, tmp_path):
    other = make_tiny_llama(tmp_path / "other", max_len=256)
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        await c.verifier.stop()
        again = c.verifier.again()
        again.config = type(again.config)(model=str(other), listen=c.verifier.address)
        await again.start()
        c.verifier = again
        status = await until_status(c.client, lambda s: "another model" in s.workers[0].last_error)
        assert not status.workers[0].connected
    assert IncompatibleWorkerError.status == "FAILED_PRECONDITION"


@pytest.mark.parametrize("options", [{"temperature": 0}, SEEDED], ids=["greedy", "seeded"])
async def test_a_coordinator_goes_and_the_client_goes_on(target_dir, draft_dir, expected, options):
    wanted = expected if options["temperature"] == 0 else await seeded(target_dir)
    async with cluster(target_dir, draft_dir, link="grpc") as c:
        client = await Client.connect(c.coordinator.address, retry=PATIENT)
        stream = client.stream(PROMPTS[0], max_tokens=NUM_TOKENS, ignore_eos=True, **options)
        whole = await c.client.generate(
            PROMPTS[0], max_tokens=NUM_TOKENS, ignore_eos=True, **options
        )

        async def watch():
            return "".join([delta.text async for delta in stream])

        watching = asyncio.create_task(watch())
        running = asyncio.create_task(load(client, **options))
        await some_output(client)
        await c.coordinator.kill()
        c.coordinator = c.coordinator.again()
        await c.coordinator.start()
        results = await running
        assert tokens(results) == wanted
        assert await watching == whole.text == stream.completion.text
        assert [r.usage.num_output_tokens for r in results] == [NUM_TOKENS] * len(PROMPTS)
        await client.close()


async def test_n_samples_and_stop_strings_survive_a_coordinator(target_dir, draft_dir):
    options = {
        "temperature": 1.2,
        "seed": 4,
        "n": 3,
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
        "stop": ["qqq", "ere is"],
        "logprobs": 1,
    }
    async with cluster(target_dir, draft_dir, link="grpc") as c:
        client = await Client.connect(c.coordinator.address, retry=PATIENT)
        whole = await client.generate(PROMPTS[3], **options)
        running = asyncio.create_task(client.generate(PROMPTS[3], **options))
        await some_output(client)
        await c.coordinator.kill()
        c.coordinator = c.coordinator.again()
        await c.coordinator.start()
        again = await running
        for one, other in zip(whole.choices, again.choices, strict=True):
            assert (one.token_ids, one.text, one.finish_reason, one.stop_string) == (
                other.token_ids,
                other.text,
                other.finish_reason,
                other.stop_string,
            )
            assert len(other.logprobs) == len(other.token_ids)
        await client.close()


async def test_without_patience_the_error_is_typed(target_dir):
    async with cluster(target_dir, mode=(1, 8, 0)) as c:
        running = asyncio.create_task(load(c.client))
        await some_output(c.client, 8)
        await c.coordinator.kill()
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert caught.group_contains(WorkerUnavailableError)
        c.coordinator = c.coordinator.again()
        await c.coordinator.start()


async def test_a_drain_lets_running_requests_end_and_refuses_new_ones(target_dir, expected):
    async with cluster(target_dir, mode=(1, 8, 0), grace_s=30.0) as c:
        running = asyncio.create_task(load(c.client))
        await some_output(c.client, 8)
        stopping = asyncio.create_task(c.coordinator.stop())
        await until_status(c.client, lambda s: s.draining)
        with pytest.raises(DrainingError) as caught:
            await c.client.generate(PROMPTS[0], max_tokens=2)
        assert caught.value.retry_after_s > 0
        assert tokens(await running) == expected
        await stopping


async def test_what_outlives_the_grace_is_cut_off_and_goes_on_at_the_next(target_dir, plain_greedy):
    async with cluster(target_dir, mode=(1, 8, 0), grace_s=0.05) as c:
        long = {"temperature": 0, "max_tokens": 450, "ignore_eos": True}
        async with await Client.connect(c.coordinator.address, retry=PATIENT) as patient:
            resumed = asyncio.create_task(patient.generate(PROMPTS[0], **long))
            cut_off = asyncio.create_task(c.client.generate(PROMPTS[0], **long))
            await some_output(c.client, 8)
            await c.coordinator.stop()
            with pytest.raises(DrainingError, match="before this answer was complete"):
                await cut_off
            c.coordinator = c.coordinator.again()
            await c.coordinator.start()
            completion = await resumed
            assert completion.finish_reason is FinishReason.LENGTH
            assert completion.token_ids == plain_greedy(PROMPTS[0], 450)
