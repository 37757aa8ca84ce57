"""Forms one end of a token link over the transport that its spec names.

The coordinator orders both ends to form at about the same time; either may be first. torch is
loaded only for gloo, and for nccl where the worker has a CUDA device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import structlog

from minedraft.errors import ConfigError, StateError
from minedraft.link import grpc, local, nccl, nccl_library
from minedraft.link.options import LinkOptions
from minedraft.packets.spec import Transport

if TYPE_CHECKING:
    from minedraft.link.endpoints import DraftReceiver, DraftSender, OnLost
    from minedraft.link.local import LocalNetwork
    from minedraft.packets.spec import LinkSpec
    from minedraft.transport.rendezvous import Rendezvous

log = structlog.get_logger(__name__)

_DEFAULTS = LinkOptions()


def available_transports(options: LinkOptions = _DEFAULTS) -> tuple[str, ...]:
    """Name the transports that a worker can use.

    nccl only where it is installed and has a device; local only in tests that gave it a network.

    Args:
        options: Settings of this service.
    """
    found = [Transport.GLOO.value, Transport.GRPC.value]
    if options.network is not None:
        found.append(Transport.LOCAL.value)
    if options.device.startswith("cuda"):
        try:
            nccl_library.load(options.device)
        except ConfigError as err:
            log.warning("nccl.unavailable", device=options.device, why=str(err))
        else:
            found.append(Transport.NCCL.value)
    return tuple(found)


async def form_sender(
    spec: LinkSpec,
    *,
    on_lost: OnLost,
    options: LinkOptions = _DEFAULTS,
) -> DraftSender:
    """Form the drafter's end.

    Args:
        spec: The coordinator's order.
        on_lost: See `OnLost`.
        options: Settings of this service.

    Raises:
        ConfigError: this process cannot use that transport; says what is missing.
        MineDraftError: it did not form; another attempt needs another name.
    """
    match spec.transport:
        case Transport.LOCAL:
            return await local.form_sender(spec, on_lost=on_lost, network=_network(options))
        case Transport.GRPC:
            return await grpc.form_sender(spec, on_lost=on_lost, options=options)
        case Transport.GLOO:
            from minedraft.link import gloo

            return await gloo.form_sender(spec, on_lost=on_lost, options=options)
        case Transport.NCCL:
            return await nccl.form_sender(spec, on_lost=on_lost, options=options)
        case _:
            assert_never(spec.transport)


async def form_receiver(
    spec: LinkSpec,
    *,
    on_lost: OnLost,
    vocab_size: int,
    rendezvous: Rendezvous | None = None,
    options: LinkOptions = _DEFAULTS,
) -> DraftReceiver:
    """Form the verifier's end.

    Args:
        spec: The coordinator's order.
        on_lost: See `OnLost`.
        vocab_size: Rows of the target's embedding; ids at or above it are refused.
        rendezvous: What stands behind this verifier's TokenLink service; not needed by `local`.
        options: Settings of this service.

    Raises:
        ConfigError: this process cannot use that transport; says what is missing.
        MineDraftError: it did not form; another attempt needs another name.
    """
    if spec.transport is Transport.LOCAL:
        return await local.form_receiver(
            spec, on_lost=on_lost, vocab_size=vocab_size, network=_network(options)
        )
    if rendezvous is None:
        raise StateError(f"link {spec.name}: {spec.transport.value} needs a rendezvous")
    if spec.transport is Transport.GRPC:
        form = grpc.form_receiver
    elif spec.transport is Transport.NCCL:
        form = nccl.form_receiver
    else:
        from minedraft.link import gloo

        form = gloo.form_receiver
    return await form(
        spec, on_lost=on_lost, vocab_size=vocab_size, rendezvous=rendezvous, options=options
    )


def _network(options: LinkOptions) -> LocalNetwork:
    if options.network is None:
        raise ConfigError("transport local: for tests, which give their workers a network")
    return options.network
