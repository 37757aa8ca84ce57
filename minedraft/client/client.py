"""The asyncio client of a coordinator: generate, stream, operate. No protobuf in or out.

A generation survives the coordinator's absence (see `resume`); every other call fails at once,
and says by its class whether a retry makes sense.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from minedraft.admin import SwapOrder
from minedraft.api import TokenizeOrder
from minedraft.client.identity import identify, proxy_hint
from minedraft.client.live_tokens import LiveTokens, draw_token
from minedraft.client.options import build_messages, build_request
from minedraft.client.resume import RetryPolicy, resuming
from minedraft.client.stream import GenerationStream
from minedraft.errors import DeadlineError, ProtocolError, WorkerUnavailableError
from minedraft.security.address import check_dial
from minedraft.transport.channel import open_channel
from minedraft.transport.home_process import HomeProcess
from minedraft.transport.public_stub import PublicStub
from minedraft.transport.status import UnknownMethodError
from minedraft.types import Mode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from typing import Self, Unpack

    from minedraft.admin import ServerInfo, Span, Status, SwapResult, TargetInfo
    from minedraft.api import Completion, Event, GenerationRequest, Message, TokenizerInfo
    from minedraft.client.options import GenerateOptions, Prompt
    from minedraft.security.config import SecurityConfig
    from minedraft.security.credentials import Credentials

CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 600.0
RETRY: Final = RetryPolicy()
SWAP_TIMEOUT_S: Final = 600.0
TEXT_TIMEOUT_S: Final = 60.0
_CALL_TIMEOUT_S: Final = 10.0
_MAX_SPANS: Final = 20_000  # about 2 MB on the wire, well under the message limit


class Client:
    """A connection to a coordinator. Use `connect` and `async with`.

    It belongs to the process that made it: in a fork every call raises `PreconditionError`.

    Example:
        async with await minedraft.Client.connect("localhost:50050") as client:
            async for delta in client.stream("Once upon a time", max_tokens=64):
                print(delta.text, end="")
    """

    def __init__(
        self,
        stub: PublicStub,
        *,
        address: str,
        request_timeout_s: float | None,
        retry: RetryPolicy,
        credentials: Credentials | None = None,
    ) -> None:
        self.address: Final = address
        self._credentials = credentials
        self._retry = retry
        self._stub = stub
        self._live_tokens = LiveTokens()
        self._streams: WeakSet[GenerationStream] = WeakSet()
        self._request_timeout_s = request_timeout_s

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float | None = REQUEST_TIMEOUT_S,
        retry: RetryPolicy = RETRY,
        security: SecurityConfig | None = None,
        http_proxy: bool = False,
    ) -> Self:
        """Connect to a coordinator and check that it is one.

        Args:
            address: `host:port`.
            timeout_s: Longest wait for the server to answer; a server that is just starting is
                waited for.
            request_timeout_s: Deadline of every generation that brings none of its own.
            retry: How generations continue after a loss of the coordinator.
            security: Certificates and token; changed files take effect. None: plaintext without
                identity.
            http_proxy: Go through the proxy that `http_proxy` and `no_proxy` in the environment
                name; otherwise they mean nothing here.

        Raises:
            ConfigError: not an address, or a certificate or token file cannot be used.
            AuthenticationError: the coordinator does not know this caller.
            WorkerUnavailableError: no coordinator answered in time, or TLS failed.
            ProtocolError: something answered that is not a coordinator.
            PreconditionError: this process was forked from one that had a client.
        """
        check_dial("address", address)
        home = HomeProcess()
        credentials = None if security is None else await asyncio.to_thread(identify, security)
        client = cls(
            PublicStub(
                open_channel(
                    address, credentials=credentials, own_connection=True, http_proxy=http_proxy
                ),
                streams=open_channel(address, credentials=credentials, http_proxy=http_proxy),
                home=home,
            ),
            address=address,
            request_timeout_s=request_timeout_s,
            retry=retry,
            credentials=credentials,
        )
        try:
            await client._stub.get_server_info(timeout_s=timeout_s, wait_for_ready=True)
        except DeadlineError:
            await client.close()
            raise WorkerUnavailableError(
                f"no MineDraft coordinator answers at {address} (waited {timeout_s:g} s): "
                "start one with `minedraft serve`, or name it with -a HOST:PORT"
                f"{proxy_hint(used=http_proxy)}"
            ) from None
        except UnknownMethodError:
            await client.close()
            raise ProtocolError(
                f"{address} is not a coordinator: another service answers there"
            ) from None
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; live streams end with `RequestAbortedError`."""
        if self._credentials is not None:
            self._credentials.close()
        await self._stub.close()

    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> GenerationStream:
        """Generate, delta by delta: `async for delta in client.stream(...)`.

        Args:
            prompt: Text or token ids; or give `messages`.
            messages: A chat, oldest first, `{"role": ..., "content": ...}` each; formatted by the
                target's own chat template.
            timeout_s: Deadline of the whole generation; None: the client's.
            options: See `GenerateOptions`.

        Returns:
            The stream. The request starts with the loop and is aborted when the loop is left;
            after the last delta `completion` holds the whole answer.

        Raises:
            InvalidRequestError: the arguments make no request. Everything else is raised by the
                loop.
        """
        request = replace(build_request(prompt, messages, options), resume_token=draw_token())
        deadline_s = self._request_timeout_s if timeout_s is None else timeout_s

        def call(request: GenerationRequest, left_s: float | None) -> AsyncGenerator[Event, None]:
            return self._stub.generate(request, timeout_s=left_s)

        def events(request: GenerationRequest) -> AsyncIterator[Event]:
            read = resuming(request, call, policy=self._retry, timeout_s=deadline_s)
            return self._live_tokens.keep(request, read)

        stream = GenerationStream(request, events)
        self._streams.add(stream)
        return stream

    async def generate(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion:
        """Generate and wait for the whole answer. Takes the arguments of `stream`.

        Raises:
            RequestError: the request is wrong, its deadline passed, or another caller aborted it.
                What `abort` of this client ends is an answer, with the reason `abort`.
            CapacityError: the service is full or going down; try again later.
            WorkerError: the service is not there or broke.
        """
        stream = self.stream(prompt, messages=messages, timeout_s=timeout_s, **options)
        return await stream.collect()

    async def abort(self, *request_ids: str) -> int:
        """Abort requests by id. Unknown and finished ids do no harm.

        Requests that this client streams, and, where callers prove who they are, all that the
        same certificate names or token began. Others' are as good as unknown.

        Returns:
            How many were live.
        """
        for stream in self._streams:
            if stream.request_id in request_ids:
                stream.is_abort_ours = True
        ids, tokens = self._live_tokens.proofs(request_ids)
        return await self._stub.abort(ids, tokens, timeout_s=_CALL_TIMEOUT_S)

    async def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        parse_special_tokens: bool = False,
        add_special_tokens: bool = True,
        timeout_s: float = TEXT_TIMEOUT_S,
    ) -> tuple[int, ...]:
        """Tokenize with the target's tokenizer, as `generate` does with the same prompt.

        Args:
            text: Any, the empty one too; or give `messages`.
            messages: A chat, oldest first, formatted by the target's own chat template.
            parse_special_tokens: Whether a special token spelled out in `text` is that token.
            add_special_tokens: Whether the tokenizer adds special tokens around `text`.
            timeout_s: Deadline of the call.

        Returns:
            The ids, at most 1,000,000; they may be more than the context.

        Raises:
            InvalidRequestError: both or neither, a message over 4 MiB, or a text that takes the
                tokenizer too long.
            CapacityError: too much waits to be tokenized.
        """
        order = TokenizeOrder(
            text=text,
            messages=None if messages is None else build_messages(messages),
            parse_special_tokens=parse_special_tokens,
            add_special_tokens=add_special_tokens,
        )
        return await self._stub.tokenize(order, timeout_s=timeout_s)

    async def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        timeout_s: float = TEXT_TIMEOUT_S,
    ) -> str:
        """Turn ids into text with the target's tokenizer.

        Args:
            token_ids: At most 1,000,000.
            skip_special_tokens: Leave special tokens out of the text.
            timeout_s: Deadline of the call.

        Returns:
            The text; U+FFFD stands for bytes that are no character.

        Raises:
            InvalidRequestError: too many, an id that no vocabulary has, or over 4 MB of text.
            CapacityError: too much waits to be tokenized.
        """
        return await self._stub.detokenize(
            token_ids, skip_special_tokens=skip_special_tokens, timeout_s=timeout_s
        )

    async def tokenizer_info(self) -> TokenizerInfo:
        """Read chat template, named special tokens and size of the target's tokenizer."""
        return await self._stub.get_tokenizer_info(timeout_s=_CALL_TIMEOUT_S)

    async def model_info(self) -> TargetInfo:
        """Read the target model, the limits of a request, and what its makers recommend."""
        return await self._stub.get_model_info(timeout_s=_CALL_TIMEOUT_S)

    async def server_info(self) -> ServerInfo:
        """Read the server's version, mode and limits."""
        return await self._stub.get_server_info(timeout_s=_CALL_TIMEOUT_S)

    async def status(self) -> Status:
        """Read batches, phases, KV blocks, workers and totals."""
        return await self._stub.get_status(timeout_s=_CALL_TIMEOUT_S)

    async def set_mode(
        self,
        *,
        num_batches: int,
        max_batch_size: int,
        num_draft_tokens: int,
        shape: str = "fixed",
        policy: str = "",
    ) -> None:
        """Set the mode: AR is (1, m, 0), SD is (1, m, k), PSD is (2, m, k).

        Args:
            num_batches: 1..8.
            max_batch_size: Most requests per batch, 1..1024.
            num_draft_tokens: k, 0..32.
            shape: `fixed`, or `auto`: the coordinator chooses within these numbers.
            policy: Decides, within k, how much each step drafts and verifies; empty: it stays.

        Raises:
            InvalidRequestError: a number out of its range, or a policy that this service has not.
        """
        mode = Mode(num_batches, max_batch_size, num_draft_tokens, shape, policy)
        await self._stub.set_mode(mode, timeout_s=_CALL_TIMEOUT_S)

    async def swap_drafter(
        self,
        *,
        model: str = "",
        address: str = "",
        replace: str = "",
        timeout_s: float = SWAP_TIMEOUT_S,
    ) -> SwapResult:
        """Swap the drafter under load: the old one drafts until the new one has caught up.

        Args:
            model: A directory that the drafter process loads beside its present model.
            address: Or the `host:port` of another drafter that is running.
            replace: Which drafter is replaced; empty: the first one.
            timeout_s: Longest the whole may take; loading a model takes its time.

        Raises:
            IncompatibleWorkerError: the new drafter does not fit the target; says what differs.
            SwapInProgressError: another swap is under way.
            PermissionDeniedError: the model is not under one of the drafter's model roots.
        """
        order = SwapOrder(model=model, address=address, replace=replace)
        return await self._stub.swap_drafter(order, timeout_s=timeout_s)

    async def timeline(
        self, *, max_spans: int = _MAX_SPANS, since_unix_ns: int = 0
    ) -> tuple[Span, ...]:
        """Read recent steps of both devices, oldest first.

        Args:
            max_spans: Most spans; the newest win.
            since_unix_ns: Only spans that began after this.
        """
        return await self._stub.get_timeline(
            max_spans=max_spans, since_unix_ns=since_unix_ns, timeout_s=_CALL_TIMEOUT_S
        )

    async def metrics(self) -> str:
        """Read the metrics in Prometheus' text format, version 0.0.4.

        Raises:
            PreconditionError: the coordinator was started without metrics.
        """
        return await self._stub.get_metrics(timeout_s=_CALL_TIMEOUT_S)
