"""A stand-in for libnccl between threads of this process, with faults to order. Sleeps never."""

from __future__ import annotations

import itertools
import queue
import threading

import numpy as np

from minedraft.errors import ProtocolError, WorkerUnavailableError


class FakeNccl:
    """Communicators by unique id; both ends of a test share one network."""

    def __init__(self):
        self.lock = threading.Lock()
        self.seats = {}
        self.ids = itertools.count()
        self.is_stuck = False
        """Communicators never come to be, and what is sent never arrives."""
        self.is_silent = False
        """What is sent never arrives, though all is well."""
        self.is_garbling = False
        self.abort_gate = threading.Event()
        self.abort_gate.set()

    def library(self, version="2.30.7"):
        return FakeLibrary(self, version)

    def seat(self, unique_id, rank, comm):
        with self.lock:
            self.seats[unique_id, rank] = comm

    def peer(self, unique_id, rank):
        with self.lock:
            return self.seats.get((unique_id, 1 - rank))


class FakeLibrary:
    device = "cuda:0"

    def __init__(self, net, version):
        self.net = net
        self.version = version
        self.comms = []
        self.stages = []

    def unique_id(self):
        return f"{next(self.net.ids):0128d}".encode()

    def join(self, unique_id, rank):
        if len(unique_id) != 128:
            raise ProtocolError(f"nccl: a unique id of {len(unique_id)} bytes, want 128")
        comm = FakeCommunicator(self.net, unique_id, rank)
        self.net.seat(unique_id, rank, comm)
        self.comms.append(comm)
        return comm

    def stage(self, num_words):
        stage = FakeStage(num_words)
        self.stages.append(stage)
        return stage


class FakeCommunicator:
    def __init__(self, net, unique_id, rank):
        self.net, self.unique_id, self.rank = net, unique_id, rank
        self.arrived = queue.SimpleQueue()
        self.failure = ""
        self.is_aborted = threading.Event()
        self.thread = None
        self.polls_left = 2

    def is_ready(self):
        self.check()
        if self.failure:
            raise WorkerUnavailableError(f"nccl: {self.failure}")
        if self.net.is_stuck or self.net.peer(self.unique_id, self.rank) is None:
            return False
        self.polls_left -= self.polls_left > 0
        return self.polls_left == 0

    def send(self, stage, peer):
        self.check()
        assert peer == 1 - self.rank
        other = self.net.peer(self.unique_id, self.rank)
        words = stage.packet.copy()
        if self.net.is_garbling:
            words[-1] ^= 1
        if not self.net.is_stuck and not self.net.is_silent:
            other.arrived.put(words)
        stage.pending = self.is_moving

    def recv(self, stage, peer):
        self.check()
        assert peer == 1 - self.rank

        def arrive():
            if not stage.is_filled:
                try:
                    words = self.arrived.get_nowait()
                except queue.Empty:
                    return False
                stage.packet[: len(words)] = words
                stage.is_filled = True
                stage.host = stage.packet.copy()
            return True

        stage.is_filled = False
        stage.pending = arrive

    def is_moving(self):
        return not self.net.is_stuck

    def abort(self):
        self.check()
        self.net.abort_gate.wait(10)
        self.is_aborted.set()

    def check(self):
        """One thread owns a communicator, and nothing comes after an abort."""
        self.thread = self.thread or threading.get_ident()
        assert self.thread == threading.get_ident(), "a communicator used from two threads"
        assert not self.is_aborted.is_set(), "used after abort"


class FakeStage:
    def __init__(self, num_words):
        self.packet = np.zeros(num_words, dtype=np.int32)
        self.host = self.packet.copy()
        self.pending = lambda: True
        self.is_filled = True

    def load(self, words):
        self.packet[:] = words

    def clear(self):
        self.packet[:] = 0

    def unload(self):
        pass  # `arrive` does it: the stream's order is the receive's

    def mark(self):
        pass

    def is_past(self):
        return self.pending()

    def words(self):
        return self.host.copy()
