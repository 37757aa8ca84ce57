from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack

import pytest

from minedraft.errors import WorkerUnavailableError
from minedraft.security import gloo_port


class Gloo:
    """What gloo does with its port, in Python: an epoll, and every connection kept."""

    def __init__(self, stack: ExitStack, family: int = socket.AF_INET) -> None:
        self._stack = stack
        self.listening = stack.enter_context(socket.socket(family))
        self.listening.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        self.listening.listen(16)
        self.poll = stack.enter_context(select.epoll())
        self.poll.register(self.listening, select.EPOLLIN)
        self.address = self.listening.getsockname()

    @property
    def told(self) -> bytes:
        """A sockaddr among other things, as gloo's addresses hold it."""
        family, (host, port) = self.listening.family, self.address[:2]
        head = struct.pack("=H", family) + struct.pack("!H", port)
        flow = b"" if family == socket.AF_INET else bytes(4)
        return b"hostname" + head + flow + socket.inet_pton(family, host) + bytes(100)

    def take_in(self, says: bytes) -> tuple[socket.socket, socket.socket]:
        far = self._stack.enter_context(socket.create_connection(self.address[:2], 5))
        far.sendall(says)
        near = self._stack.enter_context(self.listening.accept()[0])
        self.poll.register(near, select.EPOLLIN)
        near.settimeout(5)
        assert near.recv(len(says), socket.MSG_PEEK | socket.MSG_WAITALL) == says if says else True
        return near, far


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def listener(request):
    with ExitStack() as stack:
        try:
            yield Gloo(stack, request.param)
        except OSError:  # pragma: no cover
            pytest.skip("this machine has no such address")


def test_who_comes_afterwards_is_not_taken_in(listener):
    assert gloo_port.shut(listener.told) == 0
    with socket.socket(listener.listening.family) as late:
        late.settimeout(0.2)
        late.connect(listener.address)
        late.sendall(b"12345678")
        assert listener.poll.poll(0.2) == []


def test_who_came_before_and_said_nothing_is_sent_away_and_the_peer_stays(listener):
    silent, half, peer = (listener.take_in(says)[1] for says in (b"", b"1234", b"12345678"))
    assert gloo_port.shut(listener.told) == 2
    for stranger in (silent, half):
        stranger.settimeout(5)
        assert stranger.recv(1) == b""
    peer.settimeout(0.1)
    with pytest.raises(TimeoutError):
        peer.recv(1)


def test_other_ports_of_the_process_stay_open(listener):
    with ExitStack() as stack:
        other = Gloo(stack)
        _near, far = other.take_in(b"")
        gloo_port.shut(listener.told)
        far.settimeout(0.1)
        with pytest.raises(TimeoutError):
            far.recv(1)
        stack.enter_context(socket.create_connection(other.address, 5))
        assert other.poll.poll(5)


def test_it_may_be_unregistered_afterwards_which_gloo_insists_on(listener):
    gloo_port.shut(listener.told)
    listener.poll.unregister(listener.listening)


def test_a_socket_that_is_not_found_is_an_error(listener):
    with pytest.raises(WorkerUnavailableError, match="was not found"):
        gloo_port.shut(b"something else")


def test_a_socket_that_nothing_watches_is_an_error(listener):
    listener.poll.unregister(listener.listening)
    with pytest.raises(WorkerUnavailableError, match="nothing watches"):
        gloo_port.shut(listener.told)


def test_with_few_open_files_left_gloo_does_not_begin(monkeypatch):
    gloo_port.check_spare_files()
    monkeypatch.setattr(gloo_port.resource, "getrlimit", lambda _what: (64, 64))
    with pytest.raises(WorkerUnavailableError, match="of 64 files are open"):
        gloo_port.check_spare_files()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_strangers_beyond_the_limit_of_open_files_leave_the_link_as_it_was():
    done = subprocess.run(
        [sys.executable, "-c", _STRANGERS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the link carries packets\n"


_STRANGERS = """
import asyncio, os, resource, socket, subprocess, sys, grpc
from minedraft.link import gloo
from minedraft.packets.packet import DraftedRow, DraftPacket
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import LinkSpec, Transport
from minedraft.transport.rendezvous import Rendezvous
from minedraft.transport.token_link import TokenLinkServicer
from minedraft.v1 import link_pb2_grpc
from tests.integration.test_listening import open_ports

# Another process: its connections must not count as ours. It holds them until its stdin ends.
CALLER = '''
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
for port in map(int, sys.argv[1:]):
    for i in range(400):
        s = socket.socket(); s.setblocking(False); held.append(s)
        try: s.connect(("127.0.0.1", port))
        except BlockingIOError: pass
print("all", flush=True)
sys.stdin.read()
'''

async def main():
    rendezvous, server = Rendezvous(), grpc.aio.server()
    link_pb2_grpc.add_TokenLinkServicer_to_server(TokenLinkServicer(rendezvous), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    spec = LinkSpec(1, "strangers", Transport.GLOO, 4, 4, 0, f"127.0.0.1:{port}", 10.0)
    options = LinkOptions(op_timeout_s=5.0, heartbeat_s=0.05)
    losses = []
    lost = lambda *why: losses.append(why)
    sender, receiver = await asyncio.gather(
        gloo.form_sender(spec, on_lost=lost, options=options),
        gloo.form_receiver(
            spec, on_lost=lost, vocab_size=9, rendezvous=rendezvous, options=options
        ),
    )
    ports = [p for _, _, p in open_ports(os.getpid()) if p != port]
    assert len(ports) == 2, ports
    used = len(os.listdir("/proc/self/fd"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
    caller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CALLER, *map(str, ports), stdin=-1, stdout=-1
    )
    assert await caller.stdout.readline() == b"all\\n"
    for step in range(1, 20):
        sender.send(DraftPacket(1, step, 0, (DraftedRow(1, step, (1, 2)),)))
        assert await receiver.take(0, step, 5) is not None
        await asyncio.sleep(0.02)
    assert len(os.listdir("/proc/self/fd")) < used + 10
    caller.stdin.close()
    await caller.wait()
    assert not losses, losses
    sender.close()
    await server.stop(0)
    print("the link carries packets")

asyncio.run(main())
"""
