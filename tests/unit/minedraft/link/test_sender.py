from __future__ import annotations

import pytest

from minedraft.errors import StateError
from minedraft.link.options import LinkOptions
from minedraft.link.sender import LinkSender


@pytest.fixture
def sender(make_spec, losses):
    made = LinkSender(
        make_spec(),
        LinkOptions(op_timeout_s=1.0, heartbeat_s=0.001),
        description="test",
        on_lost=losses(),
        teardown=lambda: torn_down.append(True),
    )
    torn_down = made.torn_down = []
    made.losses = made._latch._on_lost
    return made


def test_it_encodes_in_the_callers_thread_and_queues(sender, make_packet, make_spec):
    sender.send(make_packet(3))

    assert make_spec().layout.decode(sender.outbox.next(), 100) == make_packet(3)


def test_an_idle_sender_beats(sender, make_spec):
    assert make_spec().layout.is_heartbeat(sender.outbox.next())


def test_what_does_not_fit_is_the_callers_bug(sender, make_packet):
    with pytest.raises(StateError, match="drafts of a row=9"):
        sender.send(make_packet(3, token_ids=tuple(range(9))))


def test_after_the_loss_packets_are_dropped_and_counted(sender, make_packet):
    sender.lose("first")
    sender.lose("second")
    sender.send(make_packet(3))
    sender.close()

    assert sender.outbox.next() is None
    assert sender.losses.reports == [(1, "first")]
    assert sender.torn_down == [True]


def test_the_owners_own_close_is_no_loss(sender):
    sender.close()
    sender.lose("the transport noticed")

    assert sender.outbox.next() is None
    assert sender.losses.reports == []
    assert sender.torn_down == [True]
