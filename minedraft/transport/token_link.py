"""The TokenLink service: the verifier's servicer and the drafter's client.

It carries keys and packets as bytes and knows the meaning of neither. The client is synchronous:
it lives in a link's own thread, beside whatever event loop the service has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import grpc

from minedraft.errors import DeadlineError, InvalidRequestError, MineDraftError, ProtocolError
from minedraft.security.channel import open_sync_channel
from minedraft.transport.channel import channel_options
from minedraft.transport.status import from_rpc_error
from minedraft.v1 import link_pb2, link_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from minedraft.security.credentials import Credentials
    from minedraft.transport.rendezvous import Rendezvous

SERVICE_NAME: Final = link_pb2.DESCRIPTOR.services_by_name["TokenLink"].full_name

_MAX_NAME_CHARS: Final = 256
_MAX_KEY_CHARS: Final = 512
_MAX_VALUE_BYTES: Final = 64 * 2**10
_MAX_PACKET_BYTES: Final = 2**20
_MAX_WAIT_S: Final = 60.0
_FIRST_MESSAGE_S: Final = 10.0
_ACCEPTED: Final = ("minedraft-link", "accepted")
"""Initial metadata that confirms the drafter's stream; a refusal has none."""
_BROKE: Final = "the connection to the drafter broke"


class TokenLinkServicer(link_pb2_grpc.TokenLinkServicer):
    """Serves a verifier's rendezvous. `ErrorInterceptor` turns its errors into statuses."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous

    async def SetKey(  # noqa: N802 the RPC's name
        self, request: link_pb2.SetKeyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> link_pb2.SetKeyResponse:
        """Write a key."""
        _check_length("link_name", len(request.link_name), _MAX_NAME_CHARS)
        _check_length("key", len(request.key), _MAX_KEY_CHARS)
        _check_length("value", len(request.value), _MAX_VALUE_BYTES)
        site = await self._rendezvous.site(request.link_name, _time_left_s(context))
        site.keys.put(request.key, request.value)
        return link_pb2.SetKeyResponse()

    async def GetKey(  # noqa: N802 the RPC's name
        self, request: link_pb2.GetKeyRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> link_pb2.GetKeyResponse:
        """Wait for a key and read it."""
        _check_length("link_name", len(request.link_name), _MAX_NAME_CHARS)
        _check_length("key", len(request.key), _MAX_KEY_CHARS)
        if not 0 <= request.timeout_s <= _MAX_WAIT_S:  # also refuses NaN
            raise InvalidRequestError(
                f"timeout_s={request.timeout_s}: want 0..{_MAX_WAIT_S:g}", field="timeout_s"
            )
        wait_s = min(request.timeout_s, _time_left_s(context))
        value = await self._rendezvous.key(request.link_name, request.key, wait_s)
        return link_pb2.GetKeyResponse(value=value)

    async def SendPackets(  # noqa: N802 the RPC's name
        self,
        request_iterator: AsyncIterator[link_pb2.SendPacketsRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> link_pb2.SendPacketsResponse:
        """Feed a link's sink until either side ends the stream or the sender falls silent."""
        try:
            async with asyncio.timeout(_FIRST_MESSAGE_S):
                first = await anext(request_iterator)
        except (StopAsyncIteration, TimeoutError):
            raise ProtocolError("SendPackets: no first message with link_name") from None
        _check_length("link_name", len(first.link_name), _MAX_NAME_CHARS)
        site = await self._rendezvous.site(first.link_name, _time_left_s(context))
        sink = site.attach(context.peer())
        reason = _BROKE
        loop = asyncio.get_running_loop()
        last_seen = loop.time()

        async def read() -> str:
            nonlocal last_seen
            async for request in request_iterator:
                last_seen = loop.time()
                if request.ends:
                    return "the drafter closed the link"
                sink.feed_bytes(request.packet)
            return _BROKE  # grpc ends the iterator of a cancelled call like that of a finished one

        reading = loop.create_task(read(), name=f"link {site.name}")
        closed = asyncio.wrap_future(site.closed)
        try:
            await context.send_initial_metadata((_ACCEPTED,))
            while not (reading.done() or closed.done()):
                silence_left_s = last_seen + site.idle_timeout_s - loop.time()
                if silence_left_s <= 0:
                    reason = f"nothing from the drafter for {site.idle_timeout_s:g} s"
                    break
                await asyncio.wait(
                    (reading, closed),
                    timeout=silence_left_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if reading.done() and not reading.cancelled():
                failure = reading.exception()
                if failure is None:
                    reason = reading.result()
                elif not isinstance(failure, grpc.aio.BaseError):
                    reason = "this end failed"
                    raise failure
            return link_pb2.SendPacketsResponse()
        finally:  # also when grpc cancels the handler because the peer is gone
            sink.lose(reason)
            reading.cancel()
            await asyncio.wait((reading,))


class TokenLinkClient:
    """The drafter's side. Thread-safe; every method blocks at most for its timeout.

    Args:
        address: `host:port` of the verifier's control plane.
        credentials: Identity of this process; None: plaintext without identity.
    """

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        options = channel_options(_MAX_PACKET_BYTES + _MAX_VALUE_BYTES)
        # A new link finds a restarted verifier at once only on a connection of its own.
        self._channel = open_sync_channel(
            address, [*options, ("grpc.use_local_subchannel_pool", 1)], credentials
        )
        stub: Any = link_pb2_grpc.TokenLinkStub  # generated without types
        self._stub = stub(self._channel)

    def set_key(self, link_name: str, key: str, value: bytes, timeout_s: float) -> None:
        """Write a key.

        Raises:
            MineDraftError: as the verifier or the connection says.
        """
        request = link_pb2.SetKeyRequest(link_name=link_name, key=key, value=value)
        try:
            self._stub.SetKey(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as err:
            raise _rebuild(err) from None

    def get_key(self, link_name: str, key: str, timeout_s: float) -> bytes:
        """Wait for a key.

        Raises:
            MineDraftError: as the verifier or the connection says.
        """
        request = link_pb2.GetKeyRequest(
            link_name=link_name, key=key, timeout_s=max(0.0, min(timeout_s, _MAX_WAIT_S))
        )
        try:
            response = self._stub.GetKey(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as err:
            raise _rebuild(err) from None
        return bytes(response.value)

    def send_packets(self, link_name: str, packets: Iterator[bytes]) -> PacketStream:
        """Open the stream of a link; a thread of grpc pulls `packets`."""

        def requests() -> Iterator[link_pb2.SendPacketsRequest]:
            yield link_pb2.SendPacketsRequest(link_name=link_name)
            for packet in packets:
                yield link_pb2.SendPacketsRequest(packet=packet)
            yield link_pb2.SendPacketsRequest(ends=True)

        return PacketStream(self._stub.SendPackets.future(requests(), wait_for_ready=True))

    def close(self) -> None:
        """End every call. Never blocks for long; idempotent."""
        self._channel.close()


class PacketStream:
    """One running SendPackets call."""

    def __init__(self, call: Any) -> None:  # grpc's sync call has no public type
        self._call = call

    def wait_accepted(self) -> None:
        """Wait until the verifier accepts the stream; `cancel` or the channel's end wakes it.

        Raises:
            MineDraftError: it refused, or the connection failed.
        """
        metadata = self._call.initial_metadata() or ()
        if _ACCEPTED not in {(key, value) for key, value in metadata}:
            self.wait_end()
            raise ProtocolError("SendPackets: the verifier ended the stream before accepting it")

    def on_end(self, tell: Callable[[], None]) -> None:
        """Have `tell` called from a thread of grpc when the call is over, or now if it is."""
        self._call.add_done_callback(lambda _call: tell())

    def wait_end(self, timeout_s: float | None = None) -> None:
        """Wait until the verifier ends the stream. `cancel` or the channel's end wakes it.

        Raises:
            MineDraftError: the connection broke, or the verifier refused a message.
            ProtocolError: this side cancelled it.
            DeadlineError: it did not within `timeout_s`.
        """
        try:
            self._call.result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise DeadlineError(f"SendPackets: no end within {timeout_s:g} s") from None
        except grpc.FutureCancelledError:
            raise ProtocolError("SendPackets: cancelled") from None
        except grpc.RpcError as err:
            raise _rebuild(err) from None

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()


def _rebuild(err: grpc.RpcError) -> MineDraftError:
    # A sync call's error has the same methods as grpc.aio's.
    return from_rpc_error(cast("grpc.aio.AioRpcError", err))


def _check_length(field: str, length: int, limit: int) -> None:
    if not 0 < length <= limit:
        raise InvalidRequestError(f"{field} of length {length}: want 1..{limit}", field=field)


def _time_left_s(context: grpc.aio.ServicerContext[Any, Any]) -> float:
    left_s = cast("float | None", context.time_remaining())  # the stubs forget the None
    return _MAX_WAIT_S if left_s is None else min(left_s, _MAX_WAIT_S)
