"""A request that the model has no numbers for ends with an error, and nobody else notices it."""

from __future__ import annotations

import asyncio
import math
import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file

from minedraft.errors import NonFiniteError
from minedraft.types import DebugOptions
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather

BAD = 33
"""The token whose embedding was never trained."""
GOOD = [[5 + (11 * i + 7 * j) % 200 + 30 for j in range(1 + 6 * i)] for i in range(8)]
NUM_TOKENS = 24
MOST_ROUNDS = 5
"""Until somebody is preempted, which about one round in twenty does not do."""
DISTURBANCES = [
    [BAD],
    [BAD, *range(40, 70)],
    [*range(40, 55), BAD, *range(55, 70)],
    [*range(40, 70), BAD],
    [*range(40, 100), BAD, *range(100, 160)],
]
EMBEDDING = "model.embed_tokens.weight"


def poisoned(source, directory, value):
    """A copy of a model whose embedding of BAD is `value`."""
    shutil.copytree(source, directory)
    weights = load_file(directory / "model.safetensors")
    weights[EMBEDDING][BAD] = value
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="module")
def models(tmp_path_factory, target_dir, draft_dir):
    root = tmp_path_factory.mktemp("models")
    shutil.copytree(target_dir, root / "sound")
    shutil.copytree(draft_dir, root / "small")
    poisoned(target_dir, root / "nan", math.nan)
    poisoned(target_dir, root / "inf", math.inf)
    return root


def ask(client, prompt, **options):
    options = {"temperature": 0, "max_tokens": NUM_TOKENS, "ignore_eos": True, **options}
    return client.generate(prompt, **options)


async def load(client, **options):
    """What the others get. None of them draws BAD, which would be its end."""
    options["logit_bias"] = {BAD: -100.0} if options.get("temperature") else {}
    answers = await gather(
        *(ask(client, prompt, seed=i, **options) for i, prompt in enumerate(GOOD))
    )
    return [answer.token_ids for answer in answers]


async def disturb(client, **options):
    """Requests that end with the error, each; they say why."""
    answers = await asyncio.gather(
        *(ask(client, prompt, **options) for prompt in DISTURBANCES), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [NonFiniteError] * len(DISTURBANCES), answers
    assert "are not finite (NaN or infinity)" in str(answers[0])


def in_small_chunks(config):
    return replace(config, prefill_budget_tokens=16)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("draft", [None, "small", "sound", "nan"])
async def test_others_get_the_targets_own_output_beside_it_and_after_it(
    models, plain_greedy, value, draft
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in GOOD]
    draft = draft and models / draft
    async with cluster(models / value, draft, num_blocks=20, coordinator=in_small_chunks) as c:
        rounds = 0
        while True:
            both = await gather(
                load(c.client), disturb(c.client), load(c.client), disturb(c.client)
            )
            rounds += 1
            assert both[0] == both[2] == expected
            status = await until_status(c.client, lambda s: s.is_idle and s.num_blocks_used == 0)
            # Who meets whom in the pool, and so who is preempted, depends on who is first.
            if status.counters.num_preemptions > 0 or rounds == MOST_ROUNDS:
                break
        assert status.counters.num_preemptions > 0
        assert status.counters.num_broken_rows == 2 * len(DISTURBANCES) * rounds
        assert status.counters.num_finished == {"length": 16 * rounds, "error": 10 * rounds}
        assert await load(c.client) == expected
        assert all(worker.last_error == "" for worker in status.workers)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("acceptance", "options"),
    [
        ("coupled", {"temperature": 1.0, "logprobs": 3}),
        ("rejection", {"temperature": 1.0, "top_p": 0.9}),
        ("rejection", {"temperature": 0, "presence_penalty": 0.5, "logprobs": 2}),
    ],
)
async def test_sampled_output_and_logprobs_are_as_undisturbed(models, acceptance, options):
    async with cluster(models / "nan", models / "small", acceptance=acceptance) as c:
        # k = 0: by rejection, a sampled output depends on the drafts, and those on who is there.
        await c.client.set_mode(num_batches=2, max_batch_size=8, num_draft_tokens=0)
        expected = await load(c.client, **options)
        got, _ = await gather(load(c.client, **options), disturb(c.client, **options))
        assert got == expected
        await c.client.set_mode(num_batches=2, max_batch_size=8, num_draft_tokens=3)
        got, _ = await gather(load(c.client, **options), disturb(c.client, **options))
        assert got == expected or acceptance == "rejection"


@pytest.mark.parametrize("value", ["nan", "inf"])
async def test_in_bf16_the_blocks_are_clean_for_the_next_one(models, value):
    async with cluster(
        models / value, num_blocks=24, mode=(1, 4, 0), verifier_options={"dtype": "bfloat16"}
    ) as c:
        # One after another: how bf16 rounds depends on how many share a step.
        expected = [(await ask(c.client, prompt)).token_ids for prompt in GOOD]
        await disturb(c.client)
        assert [(await ask(c.client, prompt)).token_ids for prompt in GOOD] == expected


async def test_a_draft_that_the_target_has_no_numbers_for_is_only_a_wrong_draft(
    models, plain_greedy
):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in GOOD]
    assert not any(BAD in tokens for tokens in expected)
    async with cluster(models / "nan", models / "nan", kind="scripted", mode=(2, 4, 4)) as c:
        for place in range(4):
            scripts = [
                tuple(BAD if i % 5 == place else t for i, t in enumerate(tokens))
                for tokens in expected
            ]
            answers = await gather(
                *(
                    ask(c.client, prompt, debug=DebugOptions(reference_token_ids=script))
                    for prompt, script in zip(GOOD, scripts, strict=True)
                )
            )
            assert [answer.token_ids for answer in answers] == expected
        counters = (await c.client.status()).counters
        assert counters.num_broken_rows == 0
        assert 0 < counters.num_accepted_tokens < counters.num_draft_tokens


async def test_a_drafter_without_numbers_costs_its_row_the_drafts_and_no_more(models, plain_greedy):
    prompts = [*GOOD[:3], *DISTURBANCES]
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in prompts]
    async with cluster(models / "sound", models / "nan") as c:
        for swapped in (None, "sound", "nan"):
            if swapped is not None:
                await c.client.swap_drafter(model=str(models / swapped))
            before = (await c.client.status()).counters.num_broken_drafts
            answers = await gather(*(ask(c.client, prompt) for prompt in prompts))
            assert [answer.token_ids for answer in answers] == expected
            drafted = [a.choices[0].speculation.num_draft_tokens for a in answers]
            assert all(a.choices[0].speculation.acceptance_rate == 1.0 for a in answers[:3])
            counters = (await c.client.status()).counters
            if swapped == "sound":
                assert min(drafted) > 0
                assert counters.num_broken_drafts == before
            else:
                assert (min(drafted[:3]) > 0, max(drafted[3:])) == (True, 0)
                assert counters.num_broken_drafts > before
        assert counters.num_broken_rows == 0


async def test_one_that_is_aborted_in_its_prefill_leaves_nothing_behind(models, plain_greedy):
    expected = [plain_greedy(prompt, NUM_TOKENS) for prompt in GOOD]

    async def leave(client, index):
        stream = client.stream([*range(40, 60), BAD, *range(300 - 80, 300)], request_id=f"r{index}")
        reading = asyncio.create_task(stream.collect())
        await until_status(client, lambda s: s.num_running > 0)
        await client.abort(f"r{index}")
        await asyncio.wait([reading])
        reading.exception()

    async with cluster(
        models / "nan",
        models / "nan",
        num_blocks=40,
        coordinator=lambda config: replace(config, prefill_budget_tokens=8),
    ) as c:
        for index in range(4):
            await leave(c.client, index)
            assert await load(c.client) == expected
