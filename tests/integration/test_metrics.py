"""Metrics and tokenization of real services: after one request every figure has a sample."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minedraft.client import Client
from minedraft.errors import PreconditionError
from tests.integration.cluster import cluster, until_up

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]
PROMPT = list(range(20, 50))
NUM_TOKENS = 24
BENCH_READS = {
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
}
"""What `vllm bench serve` adds up."""
BOARD_OF_VLLM_READS = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    *(
        f"vllm:{name}_{part}"
        for name in (
            "e2e_request_latency_seconds", "inter_token_latency_seconds",
            "time_to_first_token_seconds", "request_prompt_tokens", "request_generation_tokens",
            "request_queue_time_seconds", "request_prefill_time_seconds",
            "request_decode_time_seconds", "request_max_num_generation_tokens",
        )
        for part in ("bucket", "sum", "count")
    ),
}  # fmt: skip


async def figures(client: Client) -> dict[str, float]:
    """Sums over all labels, by the name of the sample."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(await client.metrics()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def test_after_one_request_every_figure_has_a_sample_and_a_restart_sets_it_to_0(
    target_dir, draft_dir
):
    async with cluster(target_dir, draft_dir) as running:
        before = await figures(running.client)
        assert before["minedraft_requests_total"] == 0
        answer = await running.client.generate(
            PROMPT, max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True
        )
        await running.client.status()
        found = before
        while found == before:  # a text is given again for a moment
            found = await figures(running.client)
        assert found.keys() >= BENCH_READS | BOARD_OF_VLLM_READS
        assert found["vllm:generation_tokens_total"] == NUM_TOKENS
        assert found["vllm:prompt_tokens_total"] == len(PROMPT)
        stats = answer.speculation
        assert found["vllm:spec_decode_num_drafts_total"] == stats.num_drafts > 0
        assert found["vllm:spec_decode_num_draft_tokens_total"] == stats.num_draft_tokens
        accepted = found["vllm:spec_decode_num_accepted_tokens_per_pos_total"]
        assert accepted == stats.num_accepted_tokens
        assert found["vllm:e2e_request_latency_seconds_count"] == 1
        assert found["vllm:time_to_first_token_seconds_count"] == 1
        assert found["minedraft_verify_seconds_total"] > 0
        assert found["minedraft_draft_seconds_total"] > 0
        await running.coordinator.stop()
        running.coordinator = running.coordinator.again()
        await running.coordinator.start()
        await until_up(running.client, with_drafter=True)
        again = await figures(running.client)
        assert again.keys() >= found.keys() - {"minedraft_batch_requests"}
        assert again["minedraft_requests_total"] == 0
        assert again["minedraft_output_tokens_total"] == 0


async def test_what_is_not_kept_is_not_told(target_dir):
    off = lambda config: replace(config, metrics="none")
    async with cluster(target_dir, coordinator=off) as running:
        with pytest.raises(PreconditionError, match="--metrics none"):
            await running.client.metrics()
        await running.client.generate(PROMPT, max_tokens=2)


async def test_text_becomes_the_ids_of_a_prompt_and_log_probabilities_have_their_bytes(target_dir):
    async with cluster(target_dir) as running:
        client = running.client
        text = "the quick fox"
        ids = await client.tokenize(text)
        assert await client.detokenize(ids) == text
        answer = await client.generate(text, max_tokens=8, temperature=0, logprobs=2)
        assert answer.num_prompt_tokens == len(ids)
        spelled = b"".join(entry.token_bytes for entry in answer.logprobs)
        assert spelled.decode(errors="replace").startswith(answer.text[:3])
        for entry in answer.logprobs:
            assert len(entry.top_bytes) == len(entry.top)
            at = [token_id for token_id, _ in entry.top].index(entry.token_id)
            assert entry.top_bytes[at] == entry.token_bytes
        info = await client.tokenizer_info()
        assert info.vocab_size > max(ids)
