"""Services and loads for the checks that need real ones: a pair of models, prompts, windows."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steady_load import Asked, SteadyLoad

from minedraft.bench.prompts import load_prompts
from minedraft.cli.cluster import Cluster, ClusterSpec
from minedraft.client import Client
from minedraft.hub.pairs import ensure_pair
from minedraft.services.coordinator.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from minedraft.types import Mode

DATA = Path(__file__).parents[2] / "data"
PROMPTS = {"smollm2": "spec_bench.jsonl", "coder": "humaneval.jsonl"}


def spec_of(pair: str, mode: Mode, **options: Any) -> ClusterSpec:  # noqa: ANN401
    """Describe the services of a pair."""
    found = ensure_pair(pair)
    spec = ClusterSpec(
        target=str(found.target_dir), draft=str(found.draft_dir), mode=mode, listen="127.0.0.1:0"
    )
    return replace(spec, **options)


@asynccontextmanager
async def service(spec: ClusterSpec) -> AsyncIterator[Client]:
    """Start the services, connect to them, and wait for the end of trial steps, if any."""
    async with Cluster(spec) as cluster, await Client.connect(cluster.address) as client:
        if spec.trial_s:
            async with asyncio.timeout(60.0):
                await _trials_over(client)
        yield client


async def _trials_over(client: Client) -> None:
    while True:
        await asyncio.sleep(0.1)
        costs = (await client.status()).costs
        if costs.num_trials and not costs.is_measuring:
            return


def prompts_of(pair: str, count: int, *, most: int) -> list[tuple[int, ...]]:
    """Take chat prompts of a pair's file, cut to at most so many tokens."""
    tokenizer = Tokenizer.from_directory(Path(ensure_pair(pair).target_dir))
    texts = load_prompts(DATA / PROMPTS[pair], limit=count, max_chars=400)
    return [tuple(tokenizer.encode_chat([("user", text)]))[-most:] for text in texts]


def asked(prompts: Sequence[tuple[int, ...]], max_tokens: int) -> list[Asked]:
    """Make greedy requests of them."""
    return [Asked(token_ids, max_tokens) for token_ids in prompts]


async def set_mode(client: Client, mode: Mode) -> None:
    """Set the mode of a running service, under load or not."""
    await client.set_mode(
        num_batches=mode.num_batches,
        max_batch_size=mode.max_batch_size,
        num_draft_tokens=mode.num_draft_tokens,
        shape=mode.shape,
    )


async def tokens_per_s(load: SteadyLoad, settle_s: float, window_s: float) -> float:
    """Let a load go on and count its tokens for a while.

    Raises:
        SystemExit: a request failed: the figures would be of another load.
    """
    await asyncio.sleep(settle_s)
    begin = time.time_ns()
    await asyncio.sleep(window_s)
    end = time.time_ns()
    if load.failures:
        raise SystemExit("\n".join(load.failures[:5]))
    num = sum(count for at, _, count in load.arrivals if begin < at <= end)
    return num / ((end - begin) / 1e9)
