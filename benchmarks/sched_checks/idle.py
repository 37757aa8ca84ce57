"""What idle devices are used for: a drafter that draws ahead, a target that drafts for itself."""

from __future__ import annotations

import asyncio
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

from lines import Line
from steady_load import Asked, SteadyLoad

from minedraft.bench.prompts import load_prompts
from minedraft.hub.pairs import ensure_pair
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.types import Mode
from sched_checks.service import DATA, PROMPTS, asked, prompts_of, service, spec_of, tokens_per_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from minedraft.client import Client
    from sched_checks.check import Report

K, ROUNDS = 4, 4
SETTLE_S, WINDOW_S = 1.5, 5.0
RUNNING = (1, 4)


# -- run-ahead ------------------------------------------------------------------------------


def run_ahead(pair: str) -> Report:
    """Throughput of one batch with run-ahead on and off, in turns on two services."""
    return asyncio.run(_run_ahead(pair))


async def _run_ahead(pair: str) -> Report:
    spec_for = partial(spec_of, pair, Mode(1, max(RUNNING), K, "fixed"))
    found: dict[str, dict[str, list[Any]]] = {}
    async with service(spec_for(run_ahead="auto")) as on, service(spec_for(run_ahead="off")) as off:
        for running in RUNNING:
            each = found[str(running)] = {"on": [], "off": []}
            for turn in range(ROUNDS):
                places = [("on", on), ("off", off)]
                for name, client in places if turn % 2 else reversed(places):
                    each[name].append(await _turn(client, pair, running, turn))
    return {"pair": pair, "by_running": found}


async def _turn(client: Client, pair: str, running: int, turn: int) -> dict[str, float]:
    prompts = prompts_of(pair, 32, most=64)[turn * 8 : turn * 8 + 8]
    load = SteadyLoad(client, asked(prompts, 96), running)
    async with load.running():
        speed = await tokens_per_s(load, SETTLE_S, WINDOW_S)
        spans = await client.timeline(max_spans=200)
        status = await client.status()
    usage = next(w.usage for w in status.workers if w.role == "drafter")
    lanes = {
        lane: [
            span.timing.total_ns / 1e6
            for span in spans
            if span.lane == lane and not span.num_prefill_rows and span.num_tokens
        ]
        for lane in ("verify", "draft")
    }
    return {
        "tokens_per_s": speed,
        "verify_ms": statistics.fmean(lanes["verify"]),
        "draft_ms": statistics.fmean(lanes["draft"]),
        "longest_wait_ms": usage.longest_ahead_wait_ns / 1e6 if usage else 0.0,
        "num_ahead": usage.num_ahead_tokens if usage else 0,
        "num_used": usage.num_ahead_used_tokens if usage else 0,
    }


def run_ahead_lines(report: Report) -> Iterator[Line]:
    for running, found in report["by_running"].items():
        where = f"{report['pair']}, {running} running, one batch"
        pairs = list(zip(found["on"], found["off"], strict=True))
        ratio = statistics.median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in pairs)
        verify_ms, draft_ms = (
            statistics.median(each[name] for each in found["off"])
            for name in ("verify_ms", "draft_ms")
        )
        hit = 1 - statistics.median(each["draft_ms"] for each in found["on"]) / draft_ms
        predicted = (verify_ms + draft_ms) / (verify_ms + draft_ms * (1 - hit))
        drawn, used = found["on"][-1]["num_ahead"], found["on"][-1]["num_used"]
        detail = (
            f"V {verify_ms:.0f} ms, t {draft_ms:.0f} ms, hit {hit:.2f} of t; "
            f"{used} of {drawn} tokens drawn ahead were used so far"
        )
        yield Line(f"{where}: run-ahead over none", ratio, 1.10, at_most=False, detail=detail)
        detail = f"V + t(1 - hit): {predicted:.2f}"
        text = f"{where}: run-ahead over its prediction"
        yield Line(text, ratio / predicted, 0.90, at_most=False, detail=detail)
        wait_ms = max(each["longest_wait_ms"] for each in found["on"])
        detail = f"{wait_ms:.1f} ms; a pass takes t / k, {draft_ms / K:.1f} ms"
        text = f"{where}: longest delay of a plan by run-ahead, in passes"
        yield Line(text, wait_ms / (draft_ms / K), 1.0, detail=detail)


# -- n-gram drafts --------------------------------------------------------------------------

_REPEAT = "Repeat this code word for word, and nothing else:\n"


def ngrams(pair: str) -> Report:
    """Throughput without a drafter, with n-gram drafts and without, by kind of text."""
    return asyncio.run(_ngrams(pair))


async def _ngrams(pair: str) -> Report:
    spec_for = partial(spec_of, pair, Mode(1, 4, K, "fixed"), draft="")
    texts = {
        "repeats its prompt": _repeating(pair),
        "other": asked(prompts_of(pair, 32, most=64), 96),
    }
    report: dict[str, Any] = {"pair": pair, "by_text": {name: {} for name in texts}}
    async with service(spec_for(fallback="ngram")) as on, service(spec_for(fallback="none")) as off:
        for name, requests in texts.items():
            found: dict[str, list[float]] = {"on": [], "off": []}
            for turn in range(ROUNDS):
                places = [("on", on), ("off", off)]
                for which, client in places if turn % 2 else reversed(places):
                    load = SteadyLoad(client, requests[turn::ROUNDS], 4)
                    async with load.running():
                        found[which].append(await tokens_per_s(load, SETTLE_S, WINDOW_S))
            counters = (await on.status()).counters
            found["counters"] = [counters.num_ngram_tokens, counters.num_accepted_ngram_tokens]
            report["by_text"][name] = found
    return report


def _repeating(pair: str) -> Sequence[Asked]:
    """Requests whose answers are in their prompts."""
    tokenizer = Tokenizer.from_directory(ensure_pair(pair).target_dir)
    texts = load_prompts(DATA / PROMPTS[pair], limit=16, max_chars=600)
    prompts = [tuple(tokenizer.encode_chat([("user", _REPEAT + text)])) for text in texts]
    return asked(prompts, 96)


def ngrams_lines(report: Report) -> Iterator[Line]:
    for name, found in report["by_text"].items():
        ratios = [a / b for a, b in zip(found["on"], found["off"], strict=True)]
        target = 1.15 if name != "other" else 0.98
        drafted, accepted = found["counters"]
        detail = f"{accepted} of {drafted} n-gram drafts accepted so far"
        text = f"{report['pair']}, no drafter, text: {name}: n-gram drafts over none"
        yield Line(text, statistics.median(ratios), target, at_most=False, detail=detail)
