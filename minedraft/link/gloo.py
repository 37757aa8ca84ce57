"""The gloo transport: packets as CPU tensors over TCP between two ranks. Imports torch.

Rank 0 is the verifier and receives, rank 1 is the drafter and sends. The group stands outside any
default group, and its rendezvous goes over the gRPC control plane, so there is no TCPStore port.

gloo cannot be interrupted: `abort` does nothing to a blocked wait, and a wait that times out kills
the group. So every wait happens in the link's own daemon thread with a timeout, a dead group is
never used again, and `close` leaves the thread behind: it ends by itself at the next heartbeat or,
if the peer is gone or hangs, within the operation timeout. A process that exits waits for that,
because a thread that returns from C++ into an interpreter that is going away aborts the process.

gloo listens for as long as the group exists: `gloo_port` shuts that port once the link stands.

gloo trusts its peer with the size of a message (a longer one than the receive buffer ends the
process), so both ends compare their layouts over the control plane before they connect.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
import torch
import torch.distributed as dist

from minedraft.errors import IncompatibleWorkerError, MineDraftError, WorkerUnavailableError
from minedraft.link import link_thread
from minedraft.link.formation import await_peer
from minedraft.link.keys import LocalKeys, RemoteKeys, left_s
from minedraft.link.receiver import LinkReceiver
from minedraft.link.sender import LinkSender
from minedraft.security import gloo_port
from minedraft.transport.token_link import TokenLinkClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from minedraft.link.endpoints import OnLost
    from minedraft.link.keys import Keys
    from minedraft.link.options import LinkOptions
    from minedraft.packets.spec import LinkSpec
    from minedraft.transport.rendezvous import Rendezvous

log = structlog.get_logger(__name__)

_VERIFIER: Final = 0
_DRAFTER: Final = 1
_TAG: Final = 0
_POSTED_RECVS: Final = 4
"""A gloo send blocks until the peer has posted a receive: this many sends never do."""


class _Group(Protocol):
    """The methods of ProcessGroupGloo that a link uses; torch's stubs lack them."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> dist.Work: ...

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> dist.Work: ...


class _Store(dist.Store):  # type: ignore[name-defined, misc]  # torch's stubs do not export it
    """The methods of torch's store that gloo uses to form a group, within one deadline."""

    def __init__(self, keys: Keys, until: float) -> None:
        super().__init__()
        self._keys = keys
        self._until = until
        self.told = b""
        """Everything that this end has written; it includes gloo's addresses."""

    def set(self, key: str, value: bytes) -> None:
        self.told += value
        self._keys.put(key, value, left_s(self._until))

    def get(self, key: str) -> bytes:
        return self._keys.get(key, left_s(self._until))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:  # noqa: ARG002 the deadline is ours
        for key in keys:
            self._keys.get(key, left_s(self._until))


async def form_receiver(
    spec: LinkSpec,
    *,
    on_lost: OnLost,
    vocab_size: int,
    rendezvous: Rendezvous,
    options: LinkOptions,
) -> LinkReceiver:
    """Form the verifier's end.

    Raises:
        StateError: the name is in use.
        IncompatibleWorkerError: the two ends disagree about the layout.
        WorkerUnavailableError: the drafter did not come within the spec's timeout.
    """
    receiver = LinkReceiver(
        spec,
        vocab_size=vocab_size,
        description=f"gloo tcp {options.bind_host}",
        on_lost=on_lost,
        teardown=lambda: rendezvous.close(site),
    )
    site = rendezvous.open(spec.name)

    def run(formed: Future[None]) -> None:
        group = _form(spec, options, _VERIFIER, LocalKeys(site), formed)
        if group is not None:
            _receive(group, spec, options, receiver)

    await await_peer(_start(spec, options, run, receiver.close), spec, abandon=receiver.close)
    return receiver


async def form_sender(spec: LinkSpec, *, on_lost: OnLost, options: LinkOptions) -> LinkSender:
    """Form the drafter's end. Raises like `form_receiver`."""
    client = TokenLinkClient(spec.verifier_address, options.credentials)
    sender = LinkSender(
        spec,
        options,
        description=f"gloo tcp {options.bind_host}",
        on_lost=on_lost,
        teardown=client.close,
    )

    def run(formed: Future[None]) -> None:
        group = _form(spec, options, _DRAFTER, RemoteKeys(client, spec.name), formed)
        client.close()
        if group is not None:
            _send(group, options, sender)

    await await_peer(_start(spec, options, run, sender.close), spec, abandon=sender.close)
    return sender


def _start(
    spec: LinkSpec,
    options: LinkOptions,
    run: Callable[[Future[None]], None],
    close: Callable[[], None],
) -> Future[None]:
    return link_thread.start(
        f"link-{spec.epoch}", run, close=close, patience_s=options.op_timeout_s
    )


def _form(
    spec: LinkSpec, options: LinkOptions, rank: int, keys: Keys, formed: Future[None]
) -> _Group | None:
    """Connect to the peer and resolve `formed`."""
    until = time.monotonic() + spec.timeout_s
    try:
        # Meeting first makes both ends ready before either connects: then it takes milliseconds.
        layout = repr(spec.layout).encode()
        keys.put(f"layout/{rank}", layout, left_s(until))
        theirs = keys.get(f"layout/{1 - rank}", left_s(until))
        if theirs != layout:
            raise IncompatibleWorkerError(
                f"link {spec.name}: this end has {spec.layout}, the peer has {theirs[:100]!r}"
            )
        gloo_port.check_spare_files()
        store = _Store(keys, until)
        group = _connect(store, rank, options, timedelta(seconds=left_s(until)))
        num_strangers = gloo_port.shut(store.told)
        if num_strangers:
            log.warning("strangers.refused", link=spec.name, num_sent_away=num_strangers)
    except MineDraftError as err:
        formed.set_exception(err)
        return None
    except (RuntimeError, ValueError) as err:  # torch's, and grpc's on a closed channel
        formed.set_exception(WorkerUnavailableError(f"link {spec.name} (gloo): {err}"))
        return None
    formed.set_result(None)
    return group


def _connect(store: _Store, rank: int, options: LinkOptions, timeout: timedelta) -> _Group:
    """Build the group. It listens on `bind_host` alone and reads no environment variable."""
    backend: Any = dist.ProcessGroupGloo
    settings = backend._Options()  # noqa: SLF001 torch has no other way
    settings._devices = [backend.create_device(hostname=options.bind_host)]  # noqa: SLF001
    settings._threads = 1  # noqa: SLF001 for collectives, which a link never runs
    settings._timeout = timeout  # noqa: SLF001
    group: _Group = backend(store, rank, 2, settings)
    return group


def _receive(group: _Group, spec: LinkSpec, options: LinkOptions, receiver: LinkReceiver) -> None:
    """Run the verifier's thread: keep receives posted, bound each wait."""
    op_timeout = timedelta(seconds=options.op_timeout_s)
    try:
        posted: deque[tuple[dist.Work, torch.Tensor]] = deque()
        for _ in range(_POSTED_RECVS):
            buffer = torch.zeros(spec.layout.num_words, dtype=torch.int32)
            posted.append((group.recv([buffer], _DRAFTER, _TAG), buffer))
        while receiver.is_open:
            work, buffer = posted.popleft()
            work.wait(op_timeout)
            words = buffer.numpy().copy()
            buffer.zero_()  # a short message must not be completed by the one before it
            posted.append((group.recv([buffer], _DRAFTER, _TAG), buffer))
            receiver.feed(words)
    except RuntimeError as err:
        receiver.lose(_reason(err, "drafter", options))
    finally:
        receiver.lose("the link's thread ended")  # nothing ends without a report


def _send(group: _Group, options: LinkOptions, sender: LinkSender) -> None:
    """Run the drafter's thread: send packets, or heartbeats while there are none."""
    op_timeout = timedelta(seconds=options.op_timeout_s)
    try:
        while (words := sender.outbox.next()) is not None:
            group.send([torch.from_numpy(words)], _VERIFIER, _TAG).wait(op_timeout)
    except RuntimeError as err:
        sender.lose(_reason(err, "verifier", options))
    finally:
        sender.lose("the link's thread ended")  # nothing ends without a report


def _reason(err: RuntimeError, peer: str, options: LinkOptions) -> str:
    """Shorten gloo's error, which names files of torch's build machine."""
    text = str(err)
    if "Timed out" in text:
        return f"gloo: the {peer} did nothing for {options.op_timeout_s:g} s"
    if "Connection closed" in text or "reset by peer" in text:
        return f"gloo: the {peer} closed the connection"
    return f"gloo: {text}"
