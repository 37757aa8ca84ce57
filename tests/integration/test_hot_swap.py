"""The drafter changes while clients stream: outputs equal before, during and after."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from minedraft.errors import (
    IncompatibleWorkerError,
    InvalidRequestError,
    PermissionDeniedError,
    SwapInProgressError,
    WorkerUnavailableError,
)
from minedraft.services.coordinator.engine import Engine
from minedraft.services.drafter import app as drafter_app
from tests.faults.tcp_proxy import Proxy
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather
from tests.tiny_models import make_tiny_llama

PROMPTS = [list(range(5, 6 + 5 * i)) for i in range(8)]
NUM_TOKENS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory, target_dir):
    """Models beside each other: the drafter's model root is their parent."""
    root = tmp_path_factory.mktemp("models")
    shutil.copytree(target_dir, root / "good")
    make_tiny_llama(root / "poor", seed=1, layers=1)
    make_tiny_llama(root / "stranger", vocab_size=310, tokenizer_size=310)
    return root


async def load(client):
    return await gather(
        *(
            client.generate(prompt, temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
            for prompt in PROMPTS
        )
    )


def drafter_of(status):
    return next(worker for worker in status.workers if worker.role == "drafter")


async def test_swaps_in_place_under_load_change_nothing(target_dir, models, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with cluster(target_dir, models / "poor", mode=(2, 4, 3)) as c:
        before = await c.client.status()
        verifier = next(w for w in before.workers if w.role == "verifier")
        running = asyncio.create_task(load(c.client))
        await until_status(c.client, lambda status: status.counters.num_drafts > 4)
        epochs = []
        for model in ("good", "poor", "good"):
            result = await c.client.swap_drafter(model=str(models / model))
            epochs.append(result.epoch)
            assert result.model.name.endswith(model)
        assert [r.token_ids for r in await running] == expected
        assert [r.token_ids for r in await load(c.client)] == expected
        status = await c.client.status()
        assert epochs == sorted(set(epochs))
        assert (status.swaps.num_done, status.swaps.num_failed) == (3, 0)
        assert drafter_of(status).link_epoch == epochs[-1]
        assert drafter_of(status).model.name.endswith("good")
        now = next(w for w in status.workers if w.role == "verifier")
        assert now.identity == verifier.identity
        after = await c.client.generate(PROMPTS[0], temperature=0, max_tokens=20, ignore_eos=True)
        assert after.speculation.acceptance_rate == 1.0  # it is the target itself now


async def test_blue_green_the_new_drafter_takes_over_and_the_old_one_leaves(
    target_dir, models, plain_greedy
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with cluster(target_dir, models / "poor", mode=(2, 4, 3), link="grpc") as c:
        address = await c.start_drafter(models / "good", num_blocks=256, block_size=8)
        running = asyncio.create_task(load(c.client))
        await until_status(c.client, lambda status: status.counters.num_drafts > 4)
        await c.client.swap_drafter(address=address)
        status = await c.client.status()
        assert [w.address for w in status.workers if w.role == "drafter"] == [address]
        assert [r.token_ids for r in await running] == expected
        assert [r.token_ids for r in await load(c.client)] == expected


async def test_what_does_not_fit_is_refused_and_the_old_one_goes_on(
    target_dir, models, tmp_path, plain_greedy
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with cluster(target_dir, models / "good", mode=(2, 4, 3)) as c:
        epoch = drafter_of(await c.client.status()).link_epoch
        with pytest.raises(IncompatibleWorkerError, match="fingerprint"):
            await c.client.swap_drafter(model=str(models / "stranger"))
        with pytest.raises(PermissionDeniedError):
            await c.client.swap_drafter(model=str(tmp_path))
        with pytest.raises(InvalidRequestError):
            await c.client.swap_drafter()
        stranger = await c.start_drafter(models / "stranger")
        with pytest.raises(IncompatibleWorkerError, match="vocabulary"):
            await c.client.swap_drafter(address=stranger)
        status = await c.client.status()
        assert drafter_of(status).link_epoch == epoch
        assert status.swaps.num_failed == 3
        results = await load(c.client)
        assert [r.token_ids for r in results] == expected
        assert all(r.speculation.acceptance_rate == 1.0 for r in results)


async def test_a_hostile_model_directory_is_refused_by_file_and_the_old_one_goes_on(
    target_dir, models
):
    broken = shutil.copytree(models / "good", models / "broken")
    weights = broken / "model.safetensors"
    tokenizer = (broken / "tokenizer.json").read_bytes()
    async with cluster(target_dir, models / "good", mode=(2, 4, 3)) as c:
        os.truncate(weights, weights.stat().st_size - 1)
        with pytest.raises(IncompatibleWorkerError, match=r"model\.safetensors: size is"):
            await c.client.swap_drafter(model=str(broken))
        (broken / "tokenizer.json").unlink()
        os.mkfifo(broken / "tokenizer.json")
        with pytest.raises(IncompatibleWorkerError, match=r"tokenizer\.json: is a FIFO"):
            await c.client.swap_drafter(model=str(broken))
        (broken / "tokenizer.json").unlink()
        (broken / "tokenizer.json").write_bytes(tokenizer)
        (broken / "config.json").write_text('{"model_type": "llama", "auto_map": 3}')
        with pytest.raises(IncompatibleWorkerError, match=r"config\.json: auto_map is there"):
            await c.client.swap_drafter(model=str(broken))
        results = await load(c.client)
        assert all(r.speculation.acceptance_rate == 1.0 for r in results)


async def test_links_that_break_in_the_warm_up_are_formed_again_and_the_swap_goes_on(
    target_dir, models, plain_greedy, monkeypatch
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]
    proxy, cuts = Proxy(), []
    await proxy.start()

    def behind_the_proxy(config):
        proxy.upstream = config.verifier
        return config

    warm_up = Engine.warm_up

    def cut_off(engine, source, send):
        if len(cuts) < 2:
            cuts.append(source.source_id)
            proxy.cut()  # the link that serves, too
        warm_up(engine, source, send)

    monkeypatch.setattr(Engine, "warm_up", cut_off)
    async with cluster(
        target_dir,
        models / "poor",
        mode=(2, 4, 3),
        link="grpc",
        verifier_options={"link_address": proxy.address},
        coordinator=behind_the_proxy,
    ) as c:
        running = asyncio.create_task(load(c.client))
        await until_status(c.client, lambda status: status.counters.num_drafts > 4)
        result = await c.client.swap_drafter(model=str(models / "good"))
        assert [r.token_ids for r in await running] == expected
        status = await c.client.status()
        assert (status.swaps.num_done, status.swaps.num_failed) == (1, 0)
        assert len(cuts) == 2
        assert result.epoch > cuts[-1]
        assert drafter_of(status).model.name.endswith("good")
    await proxy.close()


async def test_the_status_says_what_the_drafter_holds(target_dir, models, monkeypatch):
    monkeypatch.setattr(drafter_app, "_USAGE_PERIOD_S", 0.02)
    async with cluster(target_dir, models / "good", mode=(2, 4, 3)) as c:

        def holds(num_used):
            return lambda s: (u := drafter_of(s).usage) is not None and num_used(u.num_blocks_used)

        running = asyncio.create_task(load(c.client))
        usage = drafter_of(await until_status(c.client, holds(lambda n: n > 4))).usage
        assert usage.num_blocks == 256
        assert usage.rss_bytes > 50 * 2**20
        await running
        await until_status(c.client, holds(lambda n: n == 0))


async def test_a_short_deadline_keeps_the_reason(target_dir, models):
    async with cluster(target_dir, models / "good", mode=(2, 4, 3)) as c:
        nobody = "127.0.0.1:1"
        with pytest.raises(WorkerUnavailableError, match=f"{nobody} did not join within .* s: .*"):
            await c.client.swap_drafter(address=nobody, timeout_s=2.0)


async def test_a_second_swap_during_a_swap_is_aborted(target_dir, models):
    async with cluster(target_dir, models / "poor", mode=(2, 4, 3)) as c:
        both = [c.client.swap_drafter(model=str(models / "good")) for _ in range(2)]
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert sum(isinstance(outcome, SwapInProgressError) for outcome in outcomes) == 1
        assert (await c.client.status()).swaps.num_done == 1


async def test_two_drafters_share_the_batches_and_one_takes_over(target_dir, models, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in PROMPTS]

    async with cluster(target_dir, models / "good", num_drafters=2, mode=(2, 4, 3)) as c:
        running = asyncio.create_task(load(c.client))
        await until_status(c.client, lambda status: status.counters.num_drafts > 4)
        await c.drafters[0].stop()
        results = await running
        assert [r.token_ids for r in results] == expected
        status = await c.client.status()
        assert sum(w.connected for w in status.workers if w.role == "drafter") == 1
        again = await load(c.client)
        assert [r.token_ids for r in again] == expected
        assert all(r.speculation.num_drafts for r in again)
