"""The three services, drafter and verifier on one GPU: equal outputs, and tokens per second."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_checks.check import Figures, Setting, require
from minedraft.cli.child import Child
from minedraft.cli.cluster import (
    ClusterSpec,
    coordinator_settings,
    drafter_settings,
    verifier_settings,
)
from minedraft.client import Client
from minedraft.types import Mode
from tests.tiny_models import make_tiny_llama

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

M, K = 8, 4
MODES = {"ar": Mode(1, 2 * M, 0), "sd": Mode(1, 2 * M, K), "psd": Mode(2, M, K)}
JOIN_S = 60


def services_accepting(setting: Setting) -> Figures:
    """The drafter is the target: every draft stands."""
    return asyncio.run(_modes(setting, "oracle"))


def services_rejecting(setting: Setting) -> Figures:
    """The drafter is another random model: nearly no draft stands."""
    return asyncio.run(_modes(setting, "model"))


def services_auto_link(setting: Setting) -> Figures:
    """`auto` finds a link: NCCL with a GPU each, else what comes next."""
    return asyncio.run(_auto(setting))


async def _modes(setting: Setting, kind: str) -> Figures:
    figures: Figures = {}
    outputs: dict[str, list[tuple[int, ...]]] = {}
    async with _services(setting, kind, link="gloo") as (client, link):
        figures["link"] = link
        for name in ("psd", "ar", "sd", "psd"):  # the first one warms up
            mode = MODES[name]
            await client.set_mode(
                num_batches=mode.num_batches,
                max_batch_size=mode.max_batch_size,
                num_draft_tokens=mode.num_draft_tokens,
            )
            started = time.monotonic()
            outputs[name] = await _generate(client, setting)
            num_tokens = sum(map(len, outputs[name]))
            figures[f"{name}_tokens_s"] = round(num_tokens / (time.monotonic() - started))
    for name in ("sd", "psd"):
        pairs = zip(outputs["ar"], outputs[name], strict=True)
        differ = [index for index, (ar, other) in enumerate(pairs) if ar != other]
        require(not differ, f"{name} and ar differ in requests {differ} of {len(outputs['ar'])}")
    return figures


async def _auto(setting: Setting) -> Figures:
    drafter_device = "cuda:1" if setting.num_gpus > 1 else setting.device
    async with _services(setting, "oracle", "auto", drafter_device) as (client, link):
        outputs = await _generate(client, setting)
        if setting.num_gpus > 1:
            require(link.startswith("nccl"), f"two GPUs, and the link is {link}")
        return {"link": link, "tokens": sum(map(len, outputs))}


async def _generate(client: Client, setting: Setting) -> list[tuple[int, ...]]:
    """Run a batch of prompts; half of them greedy, half sampled with a seed."""
    num_tokens = 16 if setting.is_short else 96

    async def one(index: int) -> tuple[int, ...]:
        prompt = tuple(3 + (index * 31 + i * 7) % 290 for i in range(8 + index))
        done = await client.generate(
            prompt,
            temperature=0.8 if index % 2 else 0.0,
            seed=index,
            max_tokens=num_tokens,
            ignore_eos=True,
        )
        return tuple(done.token_ids)

    return list(await asyncio.gather(*(one(index) for index in range(2 * M))))


@asynccontextmanager
async def _services(
    setting: Setting, kind: str, link: str, drafter_device: str = ""
) -> AsyncIterator[tuple[Client, str]]:
    """Start all three; a client and what carries the link."""
    scratch = Path(tempfile.mkdtemp())
    size = {"hidden": 64, "layers": 2} if setting.is_short else {"hidden": 512, "layers": 8}
    target = make_tiny_llama(scratch / "target", **size)
    draft = target if kind == "oracle" else make_tiny_llama(scratch / "draft", seed=1, layers=1)
    spec = ClusterSpec(
        target=str(target),
        draft=str(draft),
        mode=MODES["psd"],
        listen="127.0.0.1:0",
        drafter_kind=kind,
        link=link,
    )
    device = setting.device
    children: list[Child] = []

    async def start(role: str, settings: dict[str, Any]) -> str:
        child = await Child.start(
            role, [role, "--log-json"], settings=settings, log=scratch / f"{role}.log", env={}
        )
        children.append(child)
        return await child.ready()

    try:
        verifier, drafter = await asyncio.gather(
            start("verifier", {**verifier_settings(spec), "device": device}),
            start("drafter", {**drafter_settings(spec), "device": drafter_device or device}),
        )
        address = await start("coordinator", coordinator_settings(spec, verifier, (drafter,)))
        async with await Client.connect(address) as client:
            yield client, await _linked(client)
    finally:
        for child in reversed(children):
            await child.stop(grace_s=3)


async def _linked(client: Client) -> str:
    """Wait for the link; what carries it."""
    problem = ""
    try:
        async with asyncio.timeout(JOIN_S):
            while True:
                workers = (await client.status()).workers
                for worker in workers:
                    if worker.link_epoch:
                        return worker.link_description
                problem = "; ".join(f"{w.role}: {w.last_error}" for w in workers)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise TimeoutError(f"no link after {JOIN_S} s: {problem}") from None
