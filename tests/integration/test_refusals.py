"""Bad input: a typed error that names field and value, before any work; neighbours unaffected."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace

import pytest

from minedraft.errors import (
    ConfigError,
    DuplicateRequestError,
    InvalidRequestError,
    ModelError,
    QueueFullError,
    RequestAbortedError,
)
from minedraft.services.coordinator.app import run as run_coordinator
from minedraft.services.coordinator.config import CoordinatorConfig
from minedraft.services.drafter.app import run as run_drafter
from minedraft.services.drafter.config import DrafterConfig
from minedraft.services.verifier.app import run as run_verifier
from minedraft.services.verifier.config import VerifierConfig
from minedraft.transport import public_stub
from minedraft.types import FinishReason
from tests.integration.cluster import cluster, until_status
from tests.integration.conftest import gather
from tests.tiny_models import make_tiny_llama

PROMPT = list(range(5, 20))
CONTEXT = 512

REFUSED = [
    ("empty prompt", [], {}, "prompt", "empty"),
    ("empty text", "", {}, "text", "empty"),
    ("vocabulary", [5, 300], {}, "prompt", "300"),
    ("too long", [5] * 500, {"max_tokens": 20}, "sampling.max_tokens", "500"),
    ("no room", [5] * CONTEXT, {}, "prompt", str(CONTEXT)),
    ("nan", PROMPT, {"temperature": math.nan}, "sampling.temperature", "nan"),
    ("inf", PROMPT, {"temperature": math.inf}, "sampling.temperature", "inf"),
    ("negative", PROMPT, {"temperature": -0.5}, "sampling.temperature", "-0.5"),
    ("top_p", PROMPT, {"top_p": 1.5}, "sampling.top_p", "1.5"),
    ("top_p at zero", PROMPT, {"top_p": 0.0}, "sampling.top_p", "0.0"),
    ("min_p", PROMPT, {"min_p": -0.1}, "sampling.min_p", "-0.1"),
    ("penalty", PROMPT, {"presence_penalty": 3.0}, "sampling.presence_penalty", "3"),
    ("n", PROMPT, {"n": 17}, "sampling.n", "17"),
    ("n at zero", PROMPT, {"n": 2, "temperature": 0}, "sampling.n", "2"),
    ("logprobs", PROMPT, {"logprobs": 21}, "sampling.logprobs", "21"),
    ("stops", PROMPT, {"stop": [f"s{i}" for i in range(17)]}, "sampling.stop", "17"),
    ("stop length", PROMPT, {"stop": ["x" * 300]}, "sampling.stop", "300"),
    ("bias id", PROMPT, {"logit_bias": {999: 1.0}}, "sampling.logit_bias", "999"),
    ("bias", PROMPT, {"logit_bias": {7: 101.0}}, "sampling.logit_bias[7]", "101"),
    ("max_tokens", PROMPT, {"max_tokens": 0}, "sampling.max_tokens", "0"),
    ("min_tokens", PROMPT, {"max_tokens": 4, "min_tokens": 5}, "sampling.min_tokens", "5"),
]


@pytest.mark.timeout(60)
async def test_each_bad_field_is_named_with_its_value_and_neighbours_go_on(target_dir):
    async with cluster(target_dir, target_dir, kind="oracle") as c:
        options = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
        expected = (await c.client.generate(PROMPT, **options)).token_ids
        neighbour = asyncio.create_task(c.client.generate(PROMPT, **options))
        for name, prompt, bad, field, value in REFUSED:
            with pytest.raises(InvalidRequestError) as caught:
                await c.client.generate(prompt, **bad)
            assert caught.value.field.startswith(field.split("[")[0]), name
            assert value in str(caught.value), (name, str(caught.value))
        assert (await neighbour).token_ids == expected
        assert (await c.client.status()).counters.num_requests == 2
        info = await c.client.model_info()
        assert info.model.max_model_len == CONTEXT


async def test_prompts_up_to_the_context_fill_it_exactly(target_dir, plain_greedy):
    async with cluster(target_dir, target_dir, kind="oracle", mode=(2, 2, 7)) as c:
        for room in (1, 2, 7, 8, 9):
            prompt = [5 + i % 90 for i in range(CONTEXT - room)]
            got = await c.client.generate(prompt, temperature=0, max_tokens=room, ignore_eos=True)
            assert len(got.token_ids) == room
            assert got.finish_reason is FinishReason.LENGTH
            assert got.token_ids == plain_greedy(prompt, room)


async def test_what_can_never_fit_the_pool_is_refused_with_both_numbers(target_dir):
    async with cluster(target_dir, num_blocks=10, mode=(1, 2, 0)) as c:
        with pytest.raises(InvalidRequestError, match=r"need 12 KV blocks, the pool has 10"):
            await c.client.generate(PROMPT, max_tokens=76)
        fits = await gather(
            *(c.client.generate(PROMPT, temperature=0, max_tokens=40) for _ in range(2))
        )
        assert all(r.token_ids == fits[0].token_ids for r in fits)


async def test_what_fits_the_pool_exactly_is_served_and_a_chat_fills_it(target_dir, draft_dir):
    async with cluster(target_dir, draft_dir, num_blocks=10) as c:  # 80 positions
        fits = await c.client.generate(
            PROMPT, temperature=0, max_tokens=81 - len(PROMPT), ignore_eos=True
        )
        assert fits.usage.num_output_tokens == 81 - len(PROMPT)
        with pytest.raises(InvalidRequestError, match=r"need 11 KV blocks, the pool has 10"):
            await c.client.generate(PROMPT, max_tokens=82 - len(PROMPT))
        chat = await c.client.generate(
            messages=[{"role": "user", "content": "hi"}], temperature=0, ignore_eos=True
        )
        assert chat.usage.num_prompt_tokens + chat.usage.num_output_tokens == 81


async def test_a_full_queue_is_refused_at_once_with_a_retry_delay(target_dir):
    def small(config: CoordinatorConfig) -> CoordinatorConfig:
        return replace(config, max_waiting_requests=2)

    async with cluster(target_dir, mode=(1, 1, 0), coordinator=small) as c:
        streams = [
            c.client.stream(PROMPT, temperature=0, max_tokens=400, ignore_eos=True)
            for _ in range(3)
        ]
        iterators = [aiter(stream) for stream in streams]
        await anext(iterators[0])  # it runs; the next two wait
        waiting = [asyncio.create_task(anext(iterator)) for iterator in iterators[1:]]
        await until_status(c.client, lambda status: status.num_waiting == 2)
        with pytest.raises(QueueFullError) as caught:
            await c.client.generate(PROMPT, max_tokens=4)
        assert caught.value.retry_after_s > 0
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        for iterator in iterators:
            await iterator.aclose()


async def test_a_request_id_in_use_is_refused_and_free_afterwards(target_dir):
    async with cluster(target_dir, mode=(1, 2, 0)) as c:
        stream = aiter(c.client.stream(PROMPT, temperature=0, max_tokens=400, request_id="mine"))
        await anext(stream)
        with pytest.raises(DuplicateRequestError, match="mine"):
            await c.client.generate(PROMPT, request_id="mine")
        await stream.aclose()
        await until_status(c.client, lambda status: status.num_running == 0)
        await c.client.generate(PROMPT, request_id="mine", max_tokens=2)


async def test_a_message_over_the_limit_is_refused_and_the_service_goes_on(target_dir, monkeypatch):
    async with cluster(target_dir, mode=(1, 2, 0)) as c:
        with pytest.raises(InvalidRequestError, match="want at most 4194304") as caught:
            await c.client.generate("x" * (5 * 2**20))
        assert caught.value.field == "text"
        monkeypatch.setattr(public_stub, "MAX_CLIENT_MESSAGE_BYTES", None)  # another's client
        with pytest.raises(InvalidRequestError, match="RESOURCE_EXHAUSTED"):
            await c.client.generate("x" * (5 * 2**20))
        await c.client.generate(PROMPT, max_tokens=2)


async def test_abort_is_idempotent_and_ends_the_stream_once(target_dir):
    async with cluster(target_dir, mode=(1, 2, 0)) as c:
        assert await c.client.abort("nobody") == 0
        stream = c.client.stream(PROMPT, temperature=0, max_tokens=400, request_id="r")
        iterator = aiter(stream)
        await anext(iterator)
        assert await c.client.abort("r") == 1
        assert await c.client.abort("r") == 0
        async for _ in iterator:
            pass
        assert stream.completion.finish_reason is FinishReason.ABORT


async def test_a_deadline_in_the_queue_removes_the_request(target_dir):
    async with cluster(target_dir, mode=(1, 1, 0)) as c:
        iterator = aiter(c.client.stream(PROMPT, temperature=0, max_tokens=400, ignore_eos=True))
        await anext(iterator)
        with pytest.raises(Exception, match=r"DEADLINE|deadline"):
            await c.client.generate(PROMPT, max_tokens=4, timeout_s=0.2)
        await until_status(c.client, lambda status: status.num_waiting == 0)
        await iterator.aclose()


async def test_a_drafter_with_another_vocabulary_is_refused_and_the_service_goes_on(
    target_dir, tmp_path, plain_greedy
):
    stranger = make_tiny_llama(tmp_path / "stranger", vocab_size=310, tokenizer_size=310)
    async with cluster(target_dir, mode=(2, 2, 3)) as c:
        expected = (await c.client.generate(PROMPT, temperature=0, max_tokens=8)).token_ids
        address = c.verifier_address
        drafter = await c.start_drafter(stranger)
        config = CoordinatorConfig(
            listen="127.0.0.1:0", verifier=address, drafters=(drafter,), tokenizer=str(target_dir)
        )
        async with c.another_coordinator(config) as client:
            worker = await c.wait_for_error(client, "drafter")
            assert "another vocabulary" in worker.last_error
            got = await client.generate(PROMPT, temperature=0, max_tokens=8)
            assert got.token_ids == expected


def test_pickle_weights_are_refused(tmp_path):
    model = make_tiny_llama(tmp_path / "m")
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    with pytest.raises(ModelError, match="safetensors"):
        asyncio.run(run_verifier(VerifierConfig(model=str(model), listen="127.0.0.1:0")))


def test_a_missing_tokenizer_is_refused(tmp_path):
    model = make_tiny_llama(tmp_path / "m")
    (model / "tokenizer.json").unlink()
    for run, config in (
        (run_verifier, VerifierConfig(model=str(model), listen="127.0.0.1:0")),
        (run_drafter, DrafterConfig(model=str(model), listen="127.0.0.1:0")),
        (run_coordinator, CoordinatorConfig(tokenizer=str(model), listen="127.0.0.1:0")),
    ):
        with pytest.raises(ModelError, match="tokenizer"):
            asyncio.run(run(config))


def test_remote_code_is_refused_and_never_runs(tmp_path):
    model = make_tiny_llama(tmp_path / "m")
    canary = tmp_path / "ran"
    (model / "evil.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"auto_map|remote code"):
        asyncio.run(run_verifier(VerifierConfig(model=str(model), listen="127.0.0.1:0")))
    assert not canary.exists()


def test_a_port_in_use_is_named(target_dir):
    async def two() -> None:
        async with cluster(target_dir, mode=(1, 1, 0)) as c:
            config = VerifierConfig(model=str(target_dir), listen=c.verifier_address)
            with pytest.raises(ConfigError, match=c.verifier_address.rpartition(":")[2]):
                await run_verifier(config, stop=asyncio.Event())

    asyncio.run(two())


async def test_an_aborted_unary_call_is_typed(target_dir):
    async with cluster(target_dir, mode=(1, 1, 0)) as c:
        task = asyncio.create_task(
            c.client.generate(PROMPT, temperature=0, max_tokens=400, request_id="u")
        )
        await until_status(c.client, lambda status: status.num_running == 1)
        assert await c.client.abort("u") == 1
        got = await task
        assert got.finish_reason is FinishReason.ABORT
        assert not isinstance(got, RequestAbortedError)
