"""A transport that a worker lacks is said in the status, and the service goes on without drafts."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.cluster import LOOPBACK, cluster, until_status

PROMPT = (5, 9, 17, 33)


async def test_nccl_on_cpu_workers_is_an_error_in_the_status_and_auto_takes_gloo(
    target_dir, draft_dir
):
    async with cluster(target_dir, draft_dir, link="auto") as c:
        expected = await c.client.generate(PROMPT, temperature=0, max_tokens=8)
        (drafter,) = [w for w in (await c.client.status()).workers if w.role == "drafter"]
        assert drafter.link_description.startswith("gloo")

        config = replace(c.coordinator.config, listen=LOOPBACK, link="nccl")
        async with c.another_coordinator(config) as client:

            def is_told(status):
                return any("link=nccl" in w.last_error for w in status.workers)

            status = await until_status(client, is_told)
            (drafter,) = [w for w in status.workers if w.role == "drafter"]
            assert drafter.link_epoch == 0
            assert "the drafter has gloo, grpc, local" in drafter.last_error
            got = await client.generate(PROMPT, temperature=0, max_tokens=8)
            assert got.token_ids == expected.token_ids
