from __future__ import annotations

import asyncio
import threading

import pytest

from minedraft.link.mailbox import Mailbox
from minedraft.packets.packet import DraftPacket

LONG = 15.0


def packet(step_id, epoch=1, batch=0, mark=0):
    return DraftPacket(epoch, step_id, batch, (), num_bad_rows=mark)


async def settle():
    for _ in range(3):
        await asyncio.sleep(0)


async def waiting(mailbox, step_id, timeout_s=LONG):
    task = asyncio.create_task(mailbox.take(0, step_id, timeout_s))
    await settle()
    assert not task.done()
    return task


async def test_a_packet_that_came_first_is_taken_at_once():
    mailbox = Mailbox(epoch=1)
    mailbox.post(packet(3))

    assert await mailbox.take(0, 3, 0) == packet(3)


async def test_a_packet_that_comes_later_wakes_who_waits():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)
    mailbox.post(packet(3))

    assert await task == packet(3)


async def test_a_packet_from_another_thread_wakes_who_waits():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)
    thread = threading.Thread(target=mailbox.post, args=(packet(3),))
    thread.start()

    assert await task == packet(3)
    thread.join()


async def test_no_packet_within_the_timeout_is_none_and_a_late_one_is_counted():
    mailbox = Mailbox(epoch=1)

    assert await mailbox.take(0, 3, 0.001) is None
    mailbox.post(packet(3))
    await settle()
    assert mailbox.counters.late == 1
    assert await mailbox.take(0, 4, 0) is None
    assert mailbox.counters.late == 1
    assert mailbox.counters.received == 1


async def test_packets_of_another_epoch_are_dropped_and_counted():
    mailbox = Mailbox(epoch=2)
    mailbox.post(packet(3, epoch=1))
    mailbox.post(packet(3, epoch=3))

    assert await mailbox.take(0, 3, 0) is None
    assert mailbox.counters.wrong_epoch == 2


async def test_steps_older_than_the_newest_taken_are_dropped_and_counted():
    mailbox = Mailbox(epoch=1)
    mailbox.post(packet(2))
    mailbox.post(packet(5))

    assert await mailbox.take(0, 5, 0) == packet(5)
    mailbox.post(packet(3))
    assert await mailbox.take(0, 6, 0) is None
    assert mailbox.counters.late == 2


async def test_asking_for_a_step_that_has_gone_by_gives_none_without_waiting():
    mailbox = Mailbox(epoch=1)
    mailbox.post(packet(5))
    await mailbox.take(0, 5, 0)

    async with asyncio.timeout(1):
        assert await mailbox.take(0, 4, LONG) is None
        assert await mailbox.take(0, 5, LONG) is None


async def test_a_duplicate_is_counted_before_and_after_it_is_taken():
    mailbox = Mailbox(epoch=1)
    first, second = packet(3, mark=1), packet(3, mark=2)
    mailbox.post(first)
    mailbox.post(second)

    assert await mailbox.take(0, 3, 0) == first
    mailbox.post(second)
    assert await mailbox.take(0, 4, 0) is None
    assert mailbox.counters.duplicate == 2
    assert mailbox.counters.late == 0


async def test_a_duplicate_right_behind_the_packet_somebody_waits_for_is_counted():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)
    mailbox.post(packet(3, mark=1))
    mailbox.post(packet(3, mark=2))

    assert await task == packet(3, mark=1)
    assert mailbox.counters.duplicate == 1


async def test_losing_the_link_wakes_everybody_at_once_and_for_ever():
    mailbox = Mailbox(epoch=1)
    tasks = [await waiting(mailbox, step) for step in (3, 4)]
    mailbox.lose()

    async with asyncio.timeout(1):
        assert [await task for task in tasks] == [None, None]
        assert await mailbox.take(0, 5, LONG) is None


async def test_a_packet_that_came_before_the_loss_is_still_taken():
    mailbox = Mailbox(epoch=1)
    mailbox.post(packet(3))
    mailbox.lose()

    assert await mailbox.take(0, 3, LONG) == packet(3)


async def test_a_packet_and_the_loss_in_one_turn_of_the_loop_deliver_the_packet():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)
    mailbox.post(packet(3))
    mailbox.lose()

    assert await task == packet(3)


async def test_a_cancelled_take_leaves_nothing_behind():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    mailbox.post(packet(3))
    mailbox.post(packet(4))
    assert await mailbox.take(0, 4, 0) == packet(4)
    assert mailbox._waiters == {}


async def test_who_asks_for_a_step_again_gets_none_at_once_and_the_first_one_its_packet():
    mailbox = Mailbox(epoch=1)
    task = await waiting(mailbox, 3)

    async with asyncio.timeout(1):
        assert await mailbox.take(0, 3, LONG) is None
    mailbox.post(packet(3))
    assert await task == packet(3)


async def test_steps_of_different_batches_are_taken_in_any_order():
    mailbox = Mailbox(epoch=1)
    mailbox.post(packet(6, batch=1))

    assert await mailbox.take(1, 6, 0) == packet(6, batch=1)
    older = await waiting(mailbox, 5)
    mailbox.post(packet(5))
    assert await older == packet(5)
    mailbox.post(packet(7))
    assert await mailbox.take(1, 8, 0) is None
    assert await mailbox.take(0, 7, 0) == packet(7)
    counters = mailbox.counters
    assert (counters.late, counters.duplicate, counters.received) == (0, 0, 3)


async def test_what_is_late_or_there_twice_is_told_by_batch():
    mailbox = Mailbox(epoch=1)
    for step_id, batch in ((6, 1), (9, 0)):
        mailbox.post(packet(step_id, batch=batch))
        await mailbox.take(batch, step_id, 0)
    mailbox.post(packet(5, batch=1))
    mailbox.post(packet(6, batch=1))
    mailbox.post(packet(7, batch=1))
    await settle()

    assert (mailbox.counters.late, mailbox.counters.duplicate) == (1, 1)
    assert await mailbox.take(1, 7, 0) == packet(7, batch=1)


async def test_a_peer_that_names_other_batches_is_kept_in_bounds():
    mailbox = Mailbox(epoch=1, capacity=4)
    for batch in range(100):
        mailbox.post(packet(3, batch=batch))
        await settle()

    assert len(mailbox._packets) == 4
    assert mailbox._taken == mailbox._delivered == {}


async def test_packets_nobody_takes_are_bounded_and_do_not_keep_a_good_one_out():
    mailbox = Mailbox(epoch=1, capacity=4)
    for step in range(1000, 1010):  # from a peer that runs ahead of every plan
        mailbox.post(packet(step))
        await settle()
    mailbox.post(packet(5))
    await settle()

    assert len(mailbox._packets) == 4
    assert mailbox.counters.overflow == 7
    assert await mailbox.take(0, 5, 0) == packet(5)


async def test_a_flood_while_the_loop_is_busy_is_bounded():
    mailbox = Mailbox(epoch=1, capacity=4)
    for step in range(100):  # no turn of the loop in between
        mailbox.post(packet(step))

    assert len(mailbox._inbox) == 4
    assert await mailbox.take(0, 99, 0) == packet(99)
    assert mailbox.counters.overflow == 96


def test_a_closed_loop_is_nobodys_problem():
    async def make():
        return Mailbox(epoch=1)

    mailbox = asyncio.run(make())

    mailbox.post(packet(1))
    mailbox.lose()
