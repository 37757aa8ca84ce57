"""The nccl transport: packets between two CUDA devices, over a communicator per link. No torch.

Rank 0 is the verifier and receives, rank 1 is the drafter and sends; the verifier's tensor-parallel
group is another communicator, which a dead drafter cannot touch. Rendezvous, versions and the
unique id go over the gRPC control plane. So does the lease: a stream of the same TokenLink service
that the drafter keeps open and that carries nothing but heartbeats. NCCL does not notice a dead
peer, the stream does at once, and either end then aborts within a poll. A peer that hangs is found
out by the operation timeout, on both ways.

A receive that waits is a running kernel of one block: what synchronises the whole device waits for
the next packet, at most `heartbeat_s`. NCCL listens on the interface that NCCL_SOCKET_IFNAME names,
or one of its own choice; `bind_host` is gloo's.

UNPROVEN on a GPU until `benchmarks/gpu_check.py` ran on one; the protocol is tested with a double
of the library (docs/gpu.md).
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final

import structlog

from minedraft.errors import (
    IncompatibleWorkerError,
    MineDraftError,
    ProtocolError,
    WorkerUnavailableError,
)
from minedraft.link import link_thread, nccl_library
from minedraft.link.formation import await_peer
from minedraft.link.keys import LocalKeys, RemoteKeys, left_s
from minedraft.link.nccl_log import transport_log
from minedraft.link.nccl_wire import DRAFTER, VERIFIER, Wire
from minedraft.link.receiver import LinkReceiver
from minedraft.link.sender import LinkSender
from minedraft.transport.token_link import TokenLinkClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from minedraft.link.endpoints import OnLost
    from minedraft.link.keys import Keys
    from minedraft.link.nccl_wire import Library
    from minedraft.link.options import LinkOptions
    from minedraft.packets.spec import LinkSpec
    from minedraft.transport.rendezvous import Rendezvous
    from minedraft.transport.token_link import PacketStream

log = structlog.get_logger(__name__)

_ROLES: Final = ("verifier", "drafter")
_ID, _LEASED, _PROVEN = "id", "leased", "proven"
_YES: Final = b"yes"


class _Lease:
    """The sink of the drafter's lease: only its end matters."""

    def __init__(self, lose: Callable[[str], None]) -> None:
        self.lose = lose

    def feed_bytes(self, data: bytes) -> None:
        """Ignore a message: packets travel over NCCL."""


async def form_receiver(
    spec: LinkSpec,
    *,
    on_lost: OnLost,
    vocab_size: int,
    rendezvous: Rendezvous,
    options: LinkOptions,
    library: Library | None = None,
) -> LinkReceiver:
    """Form the verifier's end.

    Raises:
        ConfigError: this process has no NCCL or no CUDA device.
        StateError: the name is in use.
        IncompatibleWorkerError: the two ends have another NCCL or another layout.
        WorkerUnavailableError: the drafter did not come, or NCCL did not connect, in time.
    """
    nccl = await _library(library, options)
    receiver = LinkReceiver(
        spec,
        vocab_size=vocab_size,
        description="nccl",
        on_lost=on_lost,
        teardown=lambda: rendezvous.close(site),
    )
    site = rendezvous.open(
        spec.name, sink=_Lease(receiver.lose), idle_timeout_s=options.op_timeout_s
    )

    def run(formed: Future[None]) -> None:
        until = time.monotonic() + spec.timeout_s
        keys = LocalKeys(site)

        def meet(wire: Wire) -> None:
            _compare(spec, VERIFIER, nccl, keys, until)
            keys.get(_LEASED, left_s(until))
            unique_id = nccl.unique_id()
            keys.put(_ID, unique_id, left_s(until))
            wire.connect(unique_id, left_s(until))
            if not spec.layout.is_heartbeat(wire.recv()):
                raise ProtocolError(f"link {spec.name}: the first packet is no heartbeat")
            keys.put(_PROVEN, _YES, left_s(until))

        def carry(wire: Wire) -> None:
            while receiver.is_open:
                receiver.feed(wire.recv())

        _live(spec, options, nccl, VERIFIER, receiver, formed, meet, carry)

    formed = link_thread.start(
        f"link-{spec.epoch}", run, close=receiver.close, patience_s=options.op_timeout_s
    )
    await await_peer(formed, spec, abandon=receiver.close)
    return receiver


async def form_sender(
    spec: LinkSpec, *, on_lost: OnLost, options: LinkOptions, library: Library | None = None
) -> LinkSender:
    """Form the drafter's end. Raises like `form_receiver`."""
    nccl = await _library(library, options)
    client = TokenLinkClient(spec.verifier_address, options.credentials)
    ended = threading.Event()

    def teardown() -> None:
        ended.set()
        client.close()

    sender = LinkSender(spec, options, description="nccl", on_lost=on_lost, teardown=teardown)
    heartbeat = spec.layout.encode_heartbeat(spec.epoch)

    def heartbeats() -> Iterator[bytes]:
        while not ended.is_set():
            yield heartbeat.tobytes()
            ended.wait(options.heartbeat_s)

    def run(formed: Future[None]) -> None:
        until = time.monotonic() + spec.timeout_s
        keys = RemoteKeys(client, spec.name)

        def meet(wire: Wire) -> None:
            _compare(spec, DRAFTER, nccl, keys, until)
            stream = client.send_packets(spec.name, heartbeats())
            stream.wait_accepted()
            threading.Thread(
                target=_watch, args=(stream, sender), name=f"lease-{spec.epoch}", daemon=True
            ).start()
            keys.put(_LEASED, _YES, left_s(until))
            wire.connect(keys.get(_ID, left_s(until)), left_s(until))
            wire.send(heartbeat)
            keys.get(_PROVEN, left_s(until))

        def carry(wire: Wire) -> None:
            while (words := sender.outbox.next()) is not None:
                wire.send(words)

        _live(spec, options, nccl, DRAFTER, sender, formed, meet, carry)

    formed = link_thread.start(
        f"link-{spec.epoch}", run, close=sender.close, patience_s=options.op_timeout_s
    )
    await await_peer(formed, spec, abandon=sender.close)
    return sender


async def _library(given: Library | None, options: LinkOptions) -> Library:
    if given is not None:
        return given
    return await asyncio.to_thread(nccl_library.load, options.device)  # the first import is slow


def _live(  # noqa: PLR0917 both ends' threads, in one place
    spec: LinkSpec,
    options: LinkOptions,
    library: Library,
    rank: int,
    end: LinkReceiver | LinkSender,
    formed: Future[None],
    meet: Callable[[Wire], None],
    carry: Callable[[Wire], None],
) -> None:
    """Run a link's thread: meet the peer, carry packets, and always abort at the end."""
    wire: Wire | None = None
    try:
        with transport_log() as said:
            wire = Wire(
                library,
                rank,
                num_words=spec.layout.num_words,
                is_wanted=lambda: end.is_open,
                op_timeout_s=options.op_timeout_s,
            )
            meet(wire)
            end.description = _describe(library, said.transports())
    except MineDraftError as err:
        formed.set_exception(err)
    except (RuntimeError, ValueError) as err:  # torch's, and grpc's on a closed channel
        formed.set_exception(WorkerUnavailableError(f"link {spec.name} (nccl): {err}"))
    else:
        formed.set_result(None)
        try:
            carry(wire)
        except (MineDraftError, RuntimeError) as err:
            end.lose(str(err))
        finally:
            end.lose("the link's thread ended")  # nothing ends without a report
    finally:
        if wire is not None:
            _abort(spec, wire)


def _abort(spec: LinkSpec, wire: Wire) -> None:
    """End the communicator. The loss is reported before, so NCCL may take long."""
    started = time.monotonic()
    try:
        wire.abort()
    except MineDraftError as err:
        log.warning("nccl.abort_failed", epoch=spec.epoch, error=str(err))
    else:
        took_ms = round(1e3 * (time.monotonic() - started), 1)
        log.debug("nccl.aborted", epoch=spec.epoch, took_ms=took_ms)


def _watch(stream: PacketStream, sender: LinkSender) -> None:
    """Hold the drafter's lease until it ends."""
    reason = "the lease ended"
    try:
        stream.wait_end()
    except MineDraftError as err:
        reason = f"the lease from the verifier broke: {err}"
    else:
        reason = "the verifier closed the link"
    finally:
        sender.lose(reason)


def _compare(spec: LinkSpec, rank: int, library: Library, keys: Keys, until: float) -> None:
    """Check that both ends have the same NCCL, which it demands, and the same layout.

    Raises:
        IncompatibleWorkerError: they have not.
    """
    mine = {"version": library.version, "layout": repr(spec.layout)}
    for what, value in mine.items():
        keys.put(f"{what}/{rank}", value.encode(), left_s(until))
    for what, value in mine.items():
        theirs = keys.get(f"{what}/{1 - rank}", left_s(until)).decode(errors="replace")[:100]
        if theirs != value:
            kind = "NCCL version" if what == "version" else what
            raise IncompatibleWorkerError(
                f"link {spec.name}: {kind} of this {_ROLES[rank]} is {value}, "
                f"of the {_ROLES[1 - rank]} {theirs!r}: they must be the same"
            )


def _describe(library: Library, transports: str) -> str:
    return f"nccl {library.version} {library.device} via {transports or 'an unknown transport'}"
