"""A drafter gone bad: it sends spoilt packets, and changes no output."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from minedraft.link import grpc as link_grpc
from minedraft.link.receiver import LinkReceiver
from minedraft.packets.packet import PacketLayout
from tests.integration.cluster import cluster
from tests.integration.conftest import gather

LAYOUT = PacketLayout(64, 16, 0)
"""Of the default configuration, under coupled acceptance."""
ROW_WORDS = LAYOUT._rows.row_words
GARBAGE = random.Random(5)


def _hostile(outbox):
    """What a drafter gone bad sends: honest packets spoilt in turn, and more around them."""
    spoilers = itertools.cycle(
        (_negative_id, _ids_beyond, _base_elsewhere, _wild_k, _nan_belief, _other_row, _honest)
    )
    before = None
    while (words := outbox.next()) is not None:
        if LAYOUT.is_heartbeat(words):
            yield words.tobytes()
            continue
        yield GARBAGE.randbytes(LAYOUT.num_bytes)
        yield GARBAGE.randbytes(7)
        packet = LAYOUT.decode(words, 2**31 - 1)
        for other in (
            dataclasses.replace(packet, epoch=packet.epoch + 1),
            dataclasses.replace(packet, step_id=packet.step_id + 5),
            dataclasses.replace(packet, step_id=2**64 - 1),
        ):
            yield LAYOUT.encode(other).tobytes()
        if before is not None:
            yield before
        spoilt = words.copy()
        next(spoilers)(spoilt[-64 * ROW_WORDS :][:ROW_WORDS])  # the first row: see packets/rows.py
        before = LAYOUT._seal(spoilt).tobytes()
        yield before
        yield before


def _negative_id(row):
    row[5] = -7


def _ids_beyond(row):
    row[5:8] = 10**6


def _base_elsewhere(row):
    row[2] += 3


def _wild_k(row):
    row[3] = 2**31 - 1


def _nan_belief(row):
    row[4] = 1
    row[5 + 16 :].view("float32")[:] = float("nan")


def _other_row(row):
    row[:2] = 77


def _honest(row):
    pass


@pytest.mark.timeout(120)
async def test_a_hostile_drafter_changes_no_output_and_is_counted(
    target_dir, plain_greedy, monkeypatch
):
    receivers: list[LinkReceiver] = []
    begin = LinkReceiver.__init__

    def remember(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        receivers.append(self)

    monkeypatch.setattr(LinkReceiver, "__init__", remember)
    monkeypatch.setattr(link_grpc, "_packets", _hostile)
    async with cluster(target_dir, target_dir, kind="oracle", link="grpc", mode=(2, 2, 3)) as c:
        before = (await c.client.status()).workers[0].identity
        prompts = [[i + j for j in range(9)] for i in range(5, 9)]
        asked = (
            c.client.generate(p, temperature=0, max_tokens=60, ignore_eos=True) for p in prompts
        )
        for prompt, got in zip(prompts, await gather(*asked), strict=True):
            assert got.token_ids == plain_greedy(prompt, 60)
        status = await c.client.status()
        assert status.workers[0].identity == before, "the verifier survived"
        assert status.num_blocks_used == 0
        assert status.counters.num_stale_drafts > 0  # base lengths elsewhere, rows of nobody
        assert status.counters.num_accepted_tokens > 0  # an honest packet still counts
    seen = [receiver.counters for receiver in receivers]
    for name in ("malformed", "bad_rows", "wrong_epoch"):
        assert sum(getattr(counters, name) for counters in seen) > 0, name
    assert sum(counters.duplicate + counters.late for counters in seen) > 0
