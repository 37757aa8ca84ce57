from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minedraft.services.coordinator.telemetry.exposition import MIN_AGE_S, Exposition
from minedraft.services.coordinator.telemetry.observed import Observed
from minedraft.services.coordinator.telemetry.timeline import Timeline
from tests.unit.services.coordinator.telemetry.test_families import STATUS


class Asked:
    """Tells one status, and counts how often."""

    def __init__(self, status=STATUS) -> None:
        self.status, self.count = status, 0

    async def __call__(self):
        self.count += 1
        await asyncio.sleep(0)
        return self.status


def exposition(observed=None, **options) -> Exposition:
    return Exposition(observed or Observed(), Timeline(), **options)


def samples(text: str):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_text_is_read_by_prometheus_own_parser():
    observed = Observed()
    observed.first_token(30_000_000, 5, 0)
    found = samples(await exposition(observed).text(Asked()))
    assert found["minedraft_output_tokens_total",] == 12_345_678
    assert found["minedraft_up",] == 1
    assert found["minedraft_time_to_first_token_seconds_bucket", ("le", "0.02")] == 0
    assert found["minedraft_time_to_first_token_seconds_bucket", ("le", "0.04")] == 1
    assert found["minedraft_time_to_first_token_seconds_bucket", ("le", "+Inf")] == 1
    assert found["minedraft_time_to_first_token_seconds_sum",] == pytest.approx(0.03)
    own = (("engine", "0"), ("model_name", "target"))
    assert found["vllm:generation_tokens_total", *own] == 12_345_678
    assert found["vllm:time_to_first_token_seconds_count", *own] == 1


async def test_names_of_before_are_still_there():
    found = {name for name, *_ in samples(await exposition().text(Asked()))}
    assert found >= {
        f"minedraft_{name}"
        for name in (
            "up", "draining", "requests_running", "requests_waiting", "kv_blocks",
            "kv_blocks_used", "kv_blocks_cached", "resident_bytes", "workers_connected",
            "verifier_draft_wait_ratio", "requests_total", "requests_finished_total",
            "output_tokens_total", "verify_steps_total", "draft_tokens_total",
            "accepted_tokens_total", "stale_drafts_total", "behind_rows_total",
            "preemptions_total", "prefix_hit_tokens_total", "evicted_blocks_total",
            "log_lines_dropped_total",
        )
    }  # fmt: skip


async def test_nothing_is_told_that_a_client_would_add_to_a_counter():
    text = await exposition().text(Asked())
    assert "_created" not in text
    drafts = [line for line in text.splitlines() if line.startswith("vllm:spec_decode_num_drafts")]
    assert len(drafts) == 1


async def test_names_of_vllm_are_left_out_on_demand():
    assert "vllm:" not in await exposition(with_vllm=False).text(Asked())


async def test_many_scrapes_make_one_text():
    now, asked = 0.0, Asked()
    page = exposition(clock=lambda: now)
    texts = await asyncio.gather(*(page.text(asked) for _ in range(50)))
    assert asked.count == 1
    assert len(set(texts)) == 1
    now += MIN_AGE_S
    await page.text(asked)
    assert asked.count == 2


async def test_every_sample_has_its_help_and_type_once():
    lines = (await exposition().text(Asked())).splitlines()
    helped = [line.split()[2] for line in lines if line.startswith("# HELP")]
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert helped == typed
    assert len(helped) == len(set(helped))
