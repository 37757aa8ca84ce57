"""The gateway in front of real services: HTTP says what gRPC says, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest

from minedraft.services.gateway import app
from minedraft.services.gateway.config import GatewayConfig
from tests.integration.cluster import Service, cluster, until_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
PROMPT = "the quick brown fox"


@asynccontextmanager
async def gateway(coordinator):
    """A gateway that knows its model, and a client of it."""
    service = Service(app.run, GatewayConfig(listen="127.0.0.1:0", coordinator=coordinator))
    address = await service.start()
    async with httpx2.AsyncClient(base_url=f"http://{address}", timeout=30) as http:
        while (await http.get("/v1/models")).status_code == 503:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        try:
            yield http
        finally:
            await service.stop()


async def streamed(http, body, on_chunk=None):
    """The text of a streamed completion."""
    text = ""
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as answered:
        assert answered.status_code == 200
        async for line in answered.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            text += chunk["choices"][0]["text"]
            if on_chunk is not None:
                await on_chunk(text)
    return text


async def test_text_over_http_is_that_over_grpc_streamed_or_not_for_every_k(target_dir, draft_dir):
    async with cluster(target_dir, draft_dir) as run, gateway(run.coordinator.address) as http:
        for temperature in (0, 0.9):
            want = await run.client.generate(
                PROMPT, max_tokens=24, temperature=temperature, seed=11, ignore_eos=True
            )
            for k in (0, 3, 7):
                body = {
                    "prompt": PROMPT, "max_tokens": 24, "temperature": temperature, "seed": 11,
                    "ignore_eos": True, "speculative": {"k": k},
                }  # fmt: skip
                whole = (await http.post("/v1/completions", json=body)).json()
                assert whole["choices"][0]["text"] == want.text
                assert whole["usage"]["completion_tokens"] == 24
                told = whole["metrics"]["speculative_decoding"]
                assert len(told["acceptance_histogram"]) == told["num_spec_tokens"] + 1
                assert sum(told["acceptance_histogram"]) == told["num_spec_steps"]
                assert bool(told["num_draft_tokens"]) == bool(k)
                assert await streamed(http, body) == want.text


async def test_ranges_are_refused_in_the_clients_own_words(target_dir):
    async with cluster(target_dir, mode=(1, 4, 0)) as run, gateway(run.coordinator.address) as http:
        for field, value in (
            ("temperature", -1), ("temperature", float("nan")), ("top_p", 0), ("n", 17),
            ("max_tokens", 10**6), ("min_p", 2), ("stop", ""), ("logit_bias", {"999999": 1}),
        ):  # fmt: skip
            content = json.dumps({"prompt": "a", field: value})
            headers = {"content-type": "application/json"}
            answered = await http.post("/v1/completions", content=content, headers=headers)
            assert answered.status_code == 400, (field, value)
            error = answered.json()["error"]
            assert error["param"] == field
            assert "sampling" not in error["message"]
        answered = await http.post("/v1/completions", json={"prompt": "x " * 5000})
        assert answered.status_code == 400
        assert answered.json()["error"]["param"] == "prompt"


async def test_a_stream_goes_on_with_the_same_text_after_the_coordinator_is_killed(
    target_dir, draft_dir
):
    async with cluster(target_dir, draft_dir) as run, gateway(run.coordinator.address) as http:
        body = {"prompt": PROMPT, "max_tokens": 60, "temperature": 0.8, "seed": 5,
                "ignore_eos": True}  # fmt: skip
        want = (await http.post("/v1/completions", json=body)).json()["choices"][0]["text"]
        num_kills = 0

        async def kill(_text):
            nonlocal num_kills
            if not num_kills:
                num_kills += 1
                await run.coordinator.kill()
                run.coordinator = run.coordinator.again()
                await run.coordinator.start()
                await until_up(run.client, with_drafter=True)

        assert await streamed(http, body, kill) == want
        assert num_kills == 1
