from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minedraft.errors import InvalidRequestError
from minedraft.link.endpoints import LinkCounters
from minedraft.link.receiver import MAX_MALFORMED_IN_A_ROW, LinkReceiver

VOCAB = 100


@pytest.fixture
def make_receiver(make_spec, losses):
    def make(vocab_size=VOCAB):
        receiver = LinkReceiver(
            make_spec(),
            vocab_size=vocab_size,
            description="test",
            on_lost=losses(),
            teardown=lambda: torn_down.append(True),
        )
        torn_down = receiver.torn_down = []
        receiver.losses = receiver._latch._on_lost
        return receiver

    return make


@pytest.fixture
def layout(make_spec):
    return make_spec().layout


async def test_it_decodes_and_delivers(make_receiver, make_packet, layout):
    receiver = make_receiver()
    receiver.feed_bytes(layout.encode(make_packet(3)).tobytes())

    assert await receiver.take(0, 3, 0) == make_packet(3)
    assert receiver.counters.received == 1


async def test_garbage_is_counted_and_a_good_packet_after_it_still_arrives(
    make_receiver, make_packet, layout
):
    receiver = make_receiver()
    receiver.feed_bytes(b"")
    receiver.feed(np.ones(layout.num_words, dtype=np.int32))
    receiver.feed(layout.encode(make_packet(3)))
    receiver.feed_bytes(b"half a pack")

    assert await receiver.take(0, 3, 0) is not None
    assert receiver.counters.malformed == 3
    assert receiver.is_open


async def test_nothing_but_garbage_ends_the_link(make_receiver):
    receiver = make_receiver()
    for _ in range(MAX_MALFORMED_IN_A_ROW + 2):
        receiver.feed_bytes(b"garbage")

    ((epoch, reason),) = receiver.losses.reports
    assert epoch == 1
    assert "malformed packets in a row" in reason
    assert await receiver.take(0, 1, 10) is None


async def test_ids_out_of_the_vocabulary_cost_the_row_its_drafts(
    make_receiver, make_packet, layout
):
    receiver = make_receiver(vocab_size=2)
    receiver.feed(layout.encode(make_packet(3, token_ids=(1, 2))))

    got = await receiver.take(0, 3, 0)
    assert got.rows[0].token_ids == ()
    assert receiver.counters.bad_rows == 1


async def test_heartbeats_are_neither_packets_nor_garbage(make_receiver, layout):
    receiver = make_receiver()
    for _ in range(MAX_MALFORMED_IN_A_ROW + 1):
        receiver.feed(layout.encode_heartbeat(1))

    assert receiver.is_open
    assert receiver.counters.received == receiver.counters.malformed == 0


async def test_everything_dropped_for_its_age_is_counted_by_why(make_receiver, make_packet, layout):
    receiver = make_receiver()
    await receiver.take(0, 5, 0)
    for step_id, epoch in [(4, 1), (5, 1), (6, 9)]:
        receiver.feed(layout.encode(make_packet(step_id, epoch=epoch)))
    assert await receiver.take(0, 6, 0) is None

    assert replace(receiver.counters, received=0) == LinkCounters(late=2, wrong_epoch=1)


async def test_the_loss_is_reported_once_and_tears_down_once(make_receiver):
    receiver = make_receiver()
    receiver.lose("first")
    receiver.lose("second")
    receiver.close()

    assert receiver.losses.reports == [(1, "first")]
    assert receiver.torn_down == [True]


async def test_the_owners_own_close_is_no_loss(make_receiver):
    receiver = make_receiver()
    receiver.close()
    receiver.close()
    receiver.lose("the transport noticed")

    assert receiver.losses.reports == []
    assert receiver.torn_down == [True]
    assert await receiver.take(0, 1, 10) is None


async def test_a_vocabulary_of_nothing_is_refused(make_receiver):
    with pytest.raises(InvalidRequestError, match="vocab_size=0"):
        make_receiver(vocab_size=0)
