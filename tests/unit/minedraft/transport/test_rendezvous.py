from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minedraft.errors import (
    DeadlineError,
    ProtocolError,
    QueueFullError,
    StateError,
    WorkerUnavailableError,
)
from minedraft.transport.rendezvous import MAX_KEYS, MAX_WAITERS, Board, Rendezvous


class Sink:
    def feed_bytes(self, data):
        pass

    def lose(self, reason):
        pass


def test_a_key_that_is_there_is_read_at_once():
    board = Board("b")
    board.put("k", b"v")

    assert board.get("k", 0) == b"v"


def test_a_thread_that_asks_too_early_gets_the_value_when_it_is_written():
    board = Board("b")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(board.get, "k", 10)
        board.put("k", b"v")
        assert waiting.result(5) == b"v"


async def test_a_coroutine_that_asks_too_early_gets_the_value_from_another_thread():
    board = Board("b")
    waiting = asyncio.create_task(board.wait("k", 10))
    await asyncio.sleep(0)
    thread = threading.Thread(target=board.put, args=("k", b"v"))
    thread.start()

    assert await waiting == b"v"
    thread.join()


async def test_a_key_that_never_comes_is_a_deadline_and_leaves_no_waiter():
    board = Board("b")
    with pytest.raises(DeadlineError, match="no 'k' within"):
        board.get("k", 0.001)
    with pytest.raises(DeadlineError, match="no 'k' within"):
        await board.wait("k", 0.001)
    assert board._waiters == {}


async def test_a_cancelled_wait_leaves_no_waiter_and_does_not_disturb_the_writer():
    board = Board("b")
    waiting = asyncio.create_task(board.wait("k", 10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert board._waiters == {}
    board.put("k", b"v")
    assert board.get("k", 0) == b"v"


def test_a_key_is_written_once():
    board = Board("b")
    board.put("k", b"v")
    with pytest.raises(ProtocolError, match="'k' is written twice"):
        board.put("k", b"forged")
    assert board.get("k", 0) == b"v"


def test_keys_are_bounded():
    board = Board("b")
    for i in range(MAX_KEYS):
        board.put(f"k{i}", b"")
    with pytest.raises(ProtocolError, match=f"over {MAX_KEYS} keys"):
        board.put("one more", b"")


async def test_waiters_are_bounded():
    board = Board("b")
    async with asyncio.TaskGroup() as group:
        for i in range(MAX_WAITERS):
            group.create_task(board.wait(f"k{i % 3}", 10))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match=f"{MAX_WAITERS} callers"):
            await board.wait("k", 10)
        for i in range(3):
            board.put(f"k{i}", b"")


async def test_the_end_of_a_board_wakes_who_waits_and_refuses_who_comes():
    board = Board("b")
    waiting = asyncio.create_task(board.wait("k", 10))
    await asyncio.sleep(0)
    board.end()

    with pytest.raises(WorkerUnavailableError, match="ended"):
        await waiting
    with pytest.raises(WorkerUnavailableError, match="ended"):
        board.get("k", 10)


async def test_a_peer_that_comes_first_waits_for_the_link_to_be_opened():
    rendezvous = Rendezvous()
    waiting = asyncio.create_task(rendezvous.key("link", "k", 10))
    await asyncio.sleep(0)
    site = rendezvous.open("link")
    site.keys.put("k", b"v")

    assert await waiting == b"v"


async def test_nothing_is_kept_for_a_link_nobody_opens():
    rendezvous = Rendezvous()
    with pytest.raises(DeadlineError):
        await rendezvous.key("unknown", "k", 0.001)
    assert rendezvous._sites._waiters == rendezvous._sites._values == {}


async def test_one_deadline_covers_the_link_and_its_key():
    now = iter([100.0, 109.999])
    rendezvous = Rendezvous(clock=lambda: next(now))
    rendezvous.open("link")

    async with asyncio.timeout(5):
        with pytest.raises(DeadlineError, match=r"within 0\.001 s"):
            await rendezvous.key("link", "k", 10)


async def test_a_closed_link_is_over_for_everybody_and_its_name_is_spent():
    rendezvous = Rendezvous()
    site = rendezvous.open("link")
    waiting = asyncio.create_task(rendezvous.key("link", "k", 10))
    await asyncio.sleep(0)
    rendezvous.close(site)
    rendezvous.close(site)

    with pytest.raises(WorkerUnavailableError, match="ended"):
        await waiting
    with pytest.raises(WorkerUnavailableError, match="link link: it has ended"):
        await rendezvous.site("link", 10)
    with pytest.raises(StateError, match="it has ended"):
        rendezvous.open("link")
    assert site.closed.done()


def test_a_name_is_opened_once():
    rendezvous = Rendezvous()
    rendezvous.open("link")
    with pytest.raises(StateError, match="'link' is written twice"):
        rendezvous.open("link")


def test_a_link_has_at_most_one_stream_and_only_if_it_wants_one():
    rendezvous = Rendezvous()
    with pytest.raises(ProtocolError, match="do not travel over gRPC"):
        rendezvous.open("gloo").attach("peer")

    sink = Sink()
    site = rendezvous.open("grpc", sink=sink)
    assert site.attach("peer") is sink
    assert site.attached.result() == "peer"
    with pytest.raises(ProtocolError, match="has a sender already"):
        site.attach("another")
