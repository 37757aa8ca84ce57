"""The grpc transport: packets as bytes in a stream over the control plane. No torch.

Works wherever the control plane works. The verifier's half runs in its server's event loop, the
drafter's in a thread of its own, so that sending never waits for the drafter's event loop.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from minedraft.errors import MineDraftError, WorkerUnavailableError
from minedraft.link.formation import await_peer
from minedraft.link.receiver import LinkReceiver
from minedraft.link.sender import LinkSender
from minedraft.transport.token_link import TokenLinkClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minedraft.link.endpoints import OnLost
    from minedraft.link.options import LinkOptions
    from minedraft.link.outbox import Outbox
    from minedraft.packets.spec import LinkSpec
    from minedraft.transport.rendezvous import Rendezvous

_GOODBYE_S: Final = 1.0
"""Longest wait for the verifier to confirm the end of a stream that this end closes."""


async def form_receiver(
    spec: LinkSpec,
    *,
    on_lost: OnLost,
    vocab_size: int,
    rendezvous: Rendezvous,
    options: LinkOptions,
) -> LinkReceiver:
    """Expect the drafter's stream.

    Raises:
        StateError: the name is in use.
        WorkerUnavailableError: the drafter did not come within the spec's timeout.
    """
    receiver = LinkReceiver(
        spec,
        vocab_size=vocab_size,
        description="grpc",
        on_lost=on_lost,
        teardown=lambda: rendezvous.close(site),
    )
    site = rendezvous.open(spec.name, sink=receiver, idle_timeout_s=options.op_timeout_s)
    peer = await await_peer(site.attached, spec, abandon=receiver.close)
    receiver.description = f"grpc stream from {peer}"
    return receiver


async def form_sender(spec: LinkSpec, *, on_lost: OnLost, options: LinkOptions) -> LinkSender:
    """Open the stream to the verifier.

    Raises:
        MineDraftError: the verifier refused it.
        WorkerUnavailableError: it did not answer within the spec's timeout.
    """
    client = TokenLinkClient(spec.verifier_address, options.credentials)
    formed: Future[None] = Future()
    formed.set_running_or_notify_cancel()
    over = threading.Event()

    def teardown() -> None:
        over.set()
        if not formed.done():
            client.close()  # wakes the thread, which waits for the verifier's word

    sender = LinkSender(
        spec,
        options,
        description=f"grpc stream to {spec.verifier_address}",
        on_lost=on_lost,
        teardown=teardown,
    )
    threading.Thread(
        target=_run,
        args=(spec, sender, client, formed, over),
        name=f"link-{spec.epoch}",
        daemon=True,
    ).start()
    await await_peer(formed, spec, abandon=sender.close)
    return sender


def _run(
    spec: LinkSpec,
    sender: LinkSender,
    client: TokenLinkClient,
    formed: Future[None],
    over: threading.Event,
) -> None:
    """Run the link's thread: open the stream, then wait until either end is done with it."""
    try:
        stream = client.send_packets(spec.name, _packets(sender.outbox))
        stream.wait_accepted()
        formed.set_result(None)
        stream.on_end(over.set)
        over.wait()
        stream.wait_end(_GOODBYE_S)  # a closed outbox ends the stream; the verifier confirms that
        sender.lose("the verifier closed the link")
    except MineDraftError as err:
        if formed.done():
            sender.lose(f"the stream to the verifier broke: {err}")
        else:
            formed.set_exception(err)
    except ValueError:  # grpc: the channel was closed because the caller gave up
        formed.set_exception(WorkerUnavailableError(f"link {spec.name}: closed while it formed"))
    finally:
        client.close()
        if formed.done() and formed.exception() is None:
            sender.lose("the link's thread ended")  # nothing ends without a report


def _packets(outbox: Outbox) -> Iterator[bytes]:
    while (words := outbox.next()) is not None:
        yield words.tobytes()
