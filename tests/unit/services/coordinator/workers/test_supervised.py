from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from minedraft.errors import IncompatibleWorkerError, ProtocolError, WorkerUnavailableError
from minedraft.services.coordinator.workers.back_off import STEADY_S
from minedraft.services.coordinator.workers.supervised import Supervised


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def supervised(clock=None) -> Supervised:
    return Supervised("worker.lost", first_pause_s=0.2, clock=clock or Clock(), address="w:1")


@pytest.mark.parametrize(
    "err",
    [
        KeyError("a prompt"),
        ZeroDivisionError(),
        RecursionError(),
        MemoryError(),
        AttributeError("'NoneType' object"),
        ExceptionGroup("a task group's", [ExceptionGroup("nested", [ValueError("words")])]),
    ],
    ids=repr,
)
async def test_whatever_is_raised_stays_with_the_peer_and_is_told_without_its_words(err):
    peer = supervised()
    with capture_logs() as logs, peer.attempt():
        raise err
    assert isinstance(peer.error, ProtocolError)
    assert peer.reason.startswith("unexpected ")
    assert "words" not in peer.reason
    assert "prompt" not in peer.reason
    assert [entry["event"] for entry in logs] == ["peer.unexpected", "worker.lost"]
    assert peer.pause_s > 0


async def test_an_error_of_ours_is_the_reason():
    peer = supervised()
    with peer.attempt():
        raise ExceptionGroup("both ends", [IncompatibleWorkerError("another vocabulary")])
    assert isinstance(peer.error, IncompatibleWorkerError)
    assert peer.reason == "another vocabulary"


async def test_an_attempt_that_ends_well_has_no_reason():
    peer = supervised()
    with peer.attempt():
        raise ProtocolError("nonsense")
    with peer.attempt():
        pass
    assert peer.error is None
    assert (peer.reason, peer.pause_s) == ("", 0.0)


async def test_a_call_that_was_cancelled_is_no_cancelled_task():
    """A group takes a task that ends with CancelledError for one that ended quietly."""
    peer = supervised()
    with peer.attempt():
        raise asyncio.CancelledError
    assert isinstance(peer.error, WorkerUnavailableError)


async def test_the_end_of_the_task_passes():
    peer = supervised()
    entered = asyncio.Event()

    async def work():
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(peer.forever(work))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_shall_never_end_is_begun_again():
    peer = Supervised("watch.failed", first_pause_s=0.0)
    lives = []
    done = asyncio.Event()

    async def work():
        lives.append(1)
        if len(lives) == 3:
            done.set()
            await asyncio.Event().wait()
        raise ValueError

    task = asyncio.create_task(peer.forever(work))
    await done.wait()
    task.cancel()
    await asyncio.wait((task,))
    assert len(lives) == 3


async def test_a_cause_is_logged_once_a_minute_with_the_number_of_repetitions():
    clock = Clock()
    peer = supervised(clock)
    with capture_logs() as logs:
        for _ in range(90):
            with peer.attempt():
                raise WorkerUnavailableError("w:1 is not there")
            clock.now_s += 1.0
    assert [(entry["why"], entry.get("repeated")) for entry in logs] == [
        ("w:1 is not there", None),
        ("w:1 is not there", 59),
    ]


async def test_reasons_that_a_peer_makes_up_are_cut_and_few():
    peer = supervised()
    with capture_logs() as logs:
        for number in range(1000):
            with peer.attempt():
                raise ProtocolError(f"{number} " + "x" * 10**5)
    assert len(logs) < 10
    assert len(peer.reason) < 310


async def test_the_pause_grows_until_it_has_worked_for_a_while():
    clock = Clock()
    peer = supervised(clock)

    def fail(worked_s: float) -> float:
        with peer.attempt():
            peer.works()
            clock.now_s += worked_s
            raise ProtocolError("nonsense")
        return peer.pause_s

    assert max(fail(STEADY_S / 2) for _ in range(20)) > 10
    assert fail(STEADY_S) <= 0.2
    for _ in range(20):
        fail(0.0)
    peer.started_over()
    assert fail(0.0) <= 0.2
