"""A link that stands and carries nothing, while the drafter says that it drafts, is formed anew."""

from __future__ import annotations

import asyncio

from minedraft.link.sender import LinkSender
from minedraft.services.coordinator.core import costs
from tests.integration.cluster import cluster, until_status

PROMPT = list(range(5, 20))
NUM_TOKENS = 200


async def test_drafts_flow_again_over_another_link_and_the_output_is_the_same(
    target_dir, plain_greedy, monkeypatch
):
    monkeypatch.setattr(costs, "DRAFT_TIMEOUT_FLOOR_NS", 3 * 10**8)
    monkeypatch.setattr(costs, "DRAFT_TIMEOUT_CEILING_NS", 10**9)
    send, useless = LinkSender.send, []

    def swallow(sender, packet):
        if packet.epoch == 1 and packet.step_id > 6:
            useless.append(packet.step_id)
        else:
            send(sender, packet)

    monkeypatch.setattr(LinkSender, "send", swallow)
    async with cluster(target_dir, target_dir, mode=(2, 4, 3), link="grpc") as c:
        running = asyncio.create_task(
            c.client.generate(PROMPT, temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
        )
        await until_status(c.client, lambda status: status.workers[1].link_epoch > 1)
        result = await running
        assert result.token_ids == plain_greedy(PROMPT, NUM_TOKENS)
        assert len(useless) == 3, "after so many nobody waits for it any more"
        status = await c.client.status()
        assert status.workers[1].last_error == "", "drafts arrive"
        assert result.speculation.num_accepted_tokens > NUM_TOKENS / 2
