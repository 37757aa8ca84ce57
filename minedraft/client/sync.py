"""The client for code without an event loop. Runs `Client` on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from minedraft.client.client import (
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    RETRY,
    SWAP_TIMEOUT_S,
    TEXT_TIMEOUT_S,
    Client,
)
from minedraft.errors import PreconditionError, RequestAbortedError
from minedraft.transport.home_process import HomeProcess

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Callable,
        Coroutine,
        Iterator,
        Mapping,
        Sequence,
    )
    from typing import Any, Self, Unpack

    from minedraft.admin import ServerInfo, Span, Status, SwapResult, TargetInfo
    from minedraft.api import Completion, Delta, Event, Message, TokenizerInfo
    from minedraft.client.options import GenerateOptions, Prompt
    from minedraft.client.resume import RetryPolicy
    from minedraft.client.stream import GenerationStream
    from minedraft.security.config import SecurityConfig

T = TypeVar("T")


class SyncStream:
    """Iterates once over a request: `for` takes its deltas, `events()` all its events.

    Leaving the loop aborts the request.
    """

    def __init__(
        self, stream: GenerationStream, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._stream = stream
        self._run = run

    @property
    def request_id(self) -> str:
        """Id for `abort`; empty until the server has sent it."""
        return self._stream.request_id

    @property
    def completion(self) -> Completion:
        """The whole answer, after the loop has ended."""
        return self._stream.completion

    def __iter__(self) -> Iterator[Delta]:
        """Start the request."""
        return self._iterate(aiter(self._stream))

    def events(self) -> Iterator[Event]:
        """As `GenerationStream.events`."""
        return self._iterate(self._stream.events())

    def _iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        async def take() -> T | None:
            return await anext(items, None)

        try:
            while (item := self._run(take())) is not None:
                yield item
        finally:
            with suppress(PreconditionError):  # a client that was closed has ended it
                self._run(items.aclose())


class SyncClient:
    """A connection to a coordinator for synchronous code. It connects at once. Use `with`.

    It belongs to the process that made it. In a fork (gunicorn's preload, celery's prefork,
    multiprocessing's 'fork') every call raises `PreconditionError`, and so does a client made there
    if the parent had one: make clients after the fork only.

    Args:
        address: `host:port`.
        timeout_s: Longest wait for the server to answer.
        request_timeout_s: Deadline of every generation that brings none of its own.
        retry: How generations continue after a loss of the coordinator.
        security: Certificates and token; None: plaintext without identity.
        http_proxy: Go through the environment's proxy.

    Raises:
        WorkerUnavailableError: no coordinator answered in time.
        PreconditionError: this process was forked from one that had a client.

    Example:
        with minedraft.SyncClient("localhost:50050") as client:
            print(client.generate("Once upon a time", max_tokens=64).text)
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = CONNECT_TIMEOUT_S,
        request_timeout_s: float | None = REQUEST_TIMEOUT_S,
        retry: RetryPolicy = RETRY,
        security: SecurityConfig | None = None,
        http_proxy: bool = False,
    ) -> None:
        self._home = HomeProcess()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="minedraft-client", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._run(
                Client.connect(
                    address,
                    timeout_s=timeout_s,
                    request_timeout_s=request_timeout_s,
                    retry=retry,
                    security=security,
                    http_proxy=http_proxy,
                )
            )
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end its thread; a second call does nothing.

        Calls of other threads end with `RequestAbortedError`. In a fork it does nothing.
        """
        if not self._home.is_here:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
        finally:
            self._stop()

    def generate(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Completion:
        """As `Client.generate`."""
        return self._run(
            self._client.generate(prompt, messages=messages, timeout_s=timeout_s, **options)
        )

    def stream(
        self,
        prompt: Prompt | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        timeout_s: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> SyncStream:
        """As `Client.stream`: iterate over deltas; leaving the loop aborts the request."""
        stream = self._client.stream(prompt, messages=messages, timeout_s=timeout_s, **options)
        return SyncStream(stream, self._run)

    def abort(self, *request_ids: str) -> int:
        """As `Client.abort`."""
        return self._run(self._client.abort(*request_ids))

    def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message | Mapping[str, str]] | None = None,
        parse_special_tokens: bool = False,
        add_special_tokens: bool = True,
        timeout_s: float = TEXT_TIMEOUT_S,
    ) -> tuple[int, ...]:
        """As `Client.tokenize`."""
        return self._run(
            self._client.tokenize(
                text,
                messages=messages,
                parse_special_tokens=parse_special_tokens,
                add_special_tokens=add_special_tokens,
                timeout_s=timeout_s,
            )
        )

    def detokenize(
        self,
        token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        timeout_s: float = TEXT_TIMEOUT_S,
    ) -> str:
        """As `Client.detokenize`."""
        return self._run(
            self._client.detokenize(
                token_ids, skip_special_tokens=skip_special_tokens, timeout_s=timeout_s
            )
        )

    def tokenizer_info(self) -> TokenizerInfo:
        """As `Client.tokenizer_info`."""
        return self._run(self._client.tokenizer_info())

    def model_info(self) -> TargetInfo:
        """As `Client.model_info`."""
        return self._run(self._client.model_info())

    def server_info(self) -> ServerInfo:
        """As `Client.server_info`."""
        return self._run(self._client.server_info())

    def status(self) -> Status:
        """As `Client.status`."""
        return self._run(self._client.status())

    def set_mode(
        self,
        *,
        num_batches: int,
        max_batch_size: int,
        num_draft_tokens: int,
        shape: str = "fixed",
        policy: str = "",
    ) -> None:
        """As `Client.set_mode`."""
        self._run(
            self._client.set_mode(
                num_batches=num_batches,
                max_batch_size=max_batch_size,
                num_draft_tokens=num_draft_tokens,
                shape=shape,
                policy=policy,
            )
        )

    def swap_drafter(
        self,
        *,
        model: str = "",
        address: str = "",
        replace: str = "",
        timeout_s: float = SWAP_TIMEOUT_S,
    ) -> SwapResult:
        """As `Client.swap_drafter`."""
        return self._run(
            self._client.swap_drafter(
                model=model, address=address, replace=replace, timeout_s=timeout_s
            )
        )

    def timeline(self, *, max_spans: int = 20_000, since_unix_ns: int = 0) -> tuple[Span, ...]:
        """As `Client.timeline`."""
        return self._run(self._client.timeline(max_spans=max_spans, since_unix_ns=since_unix_ns))

    def metrics(self) -> str:
        """As `Client.metrics`."""
        return self._run(self._client.metrics())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self._home.is_here:  # the thread is not, nor is whoever holds the lock
            coroutine.close()
            self._home.check()
        with self._lock:  # what begins after `close` would wait for a loop that has ended
            if self._is_closed:
                coroutine.close()
                raise PreconditionError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RequestAbortedError("the client was closed while the call was live") from None
        except BaseException:  # Ctrl-C too: what the caller stopped waiting for must not go on
            future.cancel()
            raise

    def _stop(self) -> None:
        asyncio.run_coroutine_threadsafe(_end_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _end_others() -> None:
    """Cancel every other task: a thread waits for each of them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
