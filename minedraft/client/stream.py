"""One generation, delta by delta or event by event. Leaving the loop over it aborts the request."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from minedraft.api import Delta
from minedraft.client.assembly import Assembly
from minedraft.errors import PreconditionError, RequestAbortedError
from minedraft.types import FinishReason

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from minedraft.api import Completion, Event, GenerationRequest


class GenerationStream:
    """Iterates once over a request: `async for` takes its deltas, `events()` all its events.

    The request starts with the loop. However the loop ends early (`break`, `return`, an
    exception, cancellation), the call is cancelled and the server aborts the request. Where
    another caller aborted it, the loop over deltas raises `RequestAbortedError` after the last
    one; `completion` holds what there is.

    Args:
        request: What was asked.
        events: Opens the call. The seam for retries and resumption: whatever it does between
            attempts, it yields one gapless sequence of events.
    """

    def __init__(
        self,
        request: GenerationRequest,
        events: Callable[[GenerationRequest], AsyncIterator[Event]],
    ) -> None:
        self._request = request
        self._open = events
        self._assembly: Assembly | None = None
        self.is_abort_ours = False
        """Whether the reader asked for the abort; then the abort is a regular end."""

    @property
    def request_id(self) -> str:
        """Id for `abort`; empty until the server has sent it."""
        started = self._assembly.started if self._assembly else None
        return started.request_id if started else self._request.request_id

    @property
    def completion(self) -> Completion:
        """The whole answer, after the loop has ended.

        Raises:
            PreconditionError: the stream has not ended.
        """
        if self._assembly is None or not self._assembly.is_finished:
            raise PreconditionError("stream: no completion before the loop has ended")
        return self._assembly.completion()

    def __aiter__(self) -> AsyncGenerator[Delta, None]:  # noqa: PYI058 its readers close it
        """Start the request.

        Raises:
            PreconditionError: it was started before.
        """
        return self._deltas(self.events())

    def events(self) -> AsyncGenerator[Event, None]:
        """Start the request; iterate over `Started`, the deltas and each sample's `Finished`.

        An event is yielded when it arrives, so a sample that ends before the others is known to
        have ended. An abort is a `Finished` with that reason, and no error.

        Returns:
            One `Started`, then deltas, then one `Finished` per sample, after that sample's last
            delta. Errors are raised in its place.

        Raises:
            PreconditionError: it was started before.
        """
        if self._assembly is not None:
            raise PreconditionError("stream: a stream can be read once; call stream() again")
        self._assembly = Assembly(self._request.sampling.n)
        # The loop alone holds this generator, so leaving the loop closes it.
        return self._checked(self._open(self._request), self._assembly)

    async def collect(self) -> Completion:
        """Read to the end."""
        async for _ in self:
            pass
        return self.completion

    @staticmethod
    async def _checked(
        events: AsyncIterator[Event], assembly: Assembly
    ) -> AsyncGenerator[Event, None]:
        async with aclosing(events):  # type: ignore[type-var]  # an async generator at run time
            async for event in events:
                assembly.push(event)
                yield event
        assembly.completion()  # a stream that just stops is the peer's fault

    async def _deltas(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Delta, None]:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Delta):
                    yield event
        ended = self.completion
        is_aborted = any(each.finish_reason is FinishReason.ABORT for each in ended.choices)
        if is_aborted and not self.is_abort_ours:
            raise RequestAbortedError(
                f"request {self.request_id!r} was aborted by another caller after "
                f"{ended.usage.num_output_tokens} output tokens"
            )
