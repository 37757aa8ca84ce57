from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from minedraft.admin import (
    CostStatus,
    Counters,
    DraftEstimate,
    ShapeStatus,
    Status,
    SwapStatus,
    WorkerStatus,
)
from minedraft.cli.status import view
from minedraft.plans import WorkerUsage
from minedraft.types import Mode
from tests.fake_coordinator import IDENTITY, MODEL


def test_status_shows_mode_workers_and_totals(minedraft):
    minedraft("generate", "hi")
    text = minedraft("status").stdout
    for part in ("mode psd: 2 x 8 requests, k = 4", "verifier", "fake-drafter", "1 accepted"):
        assert part in text


def test_status_as_json_is_the_whole_status(minedraft):
    document = json.loads(minedraft("status", "--json").stdout)
    assert document["mode"] == {
        "num_batches": 2,
        "max_batch_size": 8,
        "num_draft_tokens": 4,
        "shape": "fixed",
        "policy": "fixed",
    }
    assert [worker["role"] for worker in document["workers"]] == ["verifier", "drafter"]


def test_swaps_are_shown_once_there_were_any():
    status = Status(IDENTITY, Mode(2, 8, 4))
    assert "swaps" not in shown(status)
    swaps = SwapStatus(num_done=3, num_failed=1, last_error="another vocabulary")
    assert "swaps: 3 done, 1 failed, the last error: another vocabulary" in shown(
        replace(status, swaps=swaps)
    )
    assert "swaps: 3 done, 0 failed\n" in shown(replace(status, swaps=SwapStatus(num_done=3)))


def test_broken_numbers_are_shown_once_there_were_any():
    status = Status(IDENTITY, Mode(2, 8, 4))
    assert "not finite" not in shown(status)
    counters = Counters(num_broken_rows=3, num_broken_drafts=7)
    assert "not finite: 3 requests ended, drafts of 7 rows lost" in shown(
        replace(status, counters=counters)
    )


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        (
            CostStatus("cache", "cache"),
            "costs: target from an earlier run, drafter from an earlier run",
        ),
        (
            CostStatus("measuring", "", 46, 12, 1_240_000_000),
            "costs: target from trials under way, 12 of 46 trials, 1.2 s",
        ),
        (
            CostStatus("trials", "live", 46, 46, 3_000_000_000),
            "costs: target from trials, drafter from requests, 46 of 46 trials, 3.0 s",
        ),
    ],
)
def test_where_costs_come_from_is_shown_once_anything_is_known(costs, line):
    status = Status(IDENTITY, Mode(2, 8, 4))
    assert "costs" not in shown(status)
    assert line in shown(replace(status, costs=costs))


def test_the_prefix_cache_is_shown_once_it_was_of_use():
    status = Status(IDENTITY, Mode(2, 8, 4), num_blocks=90, num_blocks_used=5, num_blocks_cached=7)
    assert "KV blocks 5 of 90, 7 more cached" in shown(status)
    assert "prefix cache" not in shown(status)
    counters = Counters(num_prefix_hits=3, num_prefix_hit_tokens=700, num_evicted_blocks=2)
    assert "prefix cache: 3 hits, 700 tokens not fed, 2 blocks evicted" in shown(
        replace(status, counters=counters)
    )


def test_the_most_blocks_held_are_shown_once_there_were_any():
    status = Status(IDENTITY, Mode(2, 8, 4))
    assert "held" not in shown(status)
    counters = Counters(num_peak_blocks=40, num_peak_blocks_for_all=44)
    assert "most KV blocks held: 40; 44 with drafts of all batches at once" in shown(
        replace(status, counters=counters)
    )


def test_what_is_known_of_drafts_is_shown_once_anything_is():
    status = Status(IDENTITY, Mode(2, 8, 4))
    assert not any(word in shown(status) for word in ("calibration", "never verified"))
    counters = Counters(num_draft_tokens=600, num_drafted_tokens=1_000)
    known = DraftEstimate(3, 5_000, 0.0184, (0.815, 0.7))
    line = shown(replace(status, counters=counters, estimates=(known, DraftEstimate(4, 5))))
    assert "drafted and never verified: 400 tokens (40.0%)" in line
    assert "link 3: acceptance by position 0.81 0.70; calibration error 1.8%; 5000" in line
    assert "link 4: acceptance by position ; calibration error unknown; 5 outcomes" in line


def test_the_shape_is_shown_with_the_figures_it_was_chosen_by():
    status = Status(
        IDENTITY,
        Mode(2, 8, 4, "auto"),
        shape=ShapeStatus(2, 4),
        candidates=(
            ShapeStatus(1, 0, tokens_per_s=61.4),
            ShapeStatus(1, 0, is_wide=True),
            ShapeStatus(1, 4),
            ShapeStatus(2, 4, tokens_per_s=83.6),
        ),
        counters=Counters(
            num_shape_switches=3, num_moves=12, num_rotating_steps=400, num_fallback_steps=2
        ),
    )
    lines = [line.strip() for line in shown(status).splitlines()]
    assert "shape auto: 2 batches, k = 4; 3 switches" in lines
    assert "plain decoding: 61 tokens/s" in lines
    assert "plain decoding on all cores: unknown" in lines
    assert "one batch, k = 4: unknown" in lines
    assert "2 batches, k = 4: 84 tokens/s" in lines
    assert "moves: 12; of 400 steps that could rotate, 2 took turns (0.5%)" in lines


def test_what_a_drafter_holds_is_shown_once_it_is_known():
    worker = WorkerStatus("drafter", "h:1", connected=True, identity=IDENTITY, model=MODEL)
    status = Status(IDENTITY, Mode(2, 8, 4), workers=(worker,))
    assert "blocks, " not in shown(status)
    on = replace(worker, model=replace(MODEL, device="cpu EPYC x2"))
    assert "cpu EPYC x2" in shown(replace(status, workers=(on,)))
    known = replace(worker, usage=WorkerUsage(1024, 37, 412 * 2**20, 8))
    assert "37 of 1024 blocks, 8 more cached, 412 MiB" in shown(replace(status, workers=(known,)))
    assert "drawn ahead" not in shown(replace(status, workers=(known,)))
    ahead = replace(known, usage=replace(known.usage, num_ahead_tokens=9, num_ahead_used_tokens=4))
    assert "9 tokens drawn ahead, 5 of them not used" in shown(replace(status, workers=(ahead,)))


def shown(status):
    console = Console(file=io.StringIO(), width=200)
    console.print(view(status, "h:1"))
    return console.file.getvalue()
