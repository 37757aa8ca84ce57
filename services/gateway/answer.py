"""Answers one generation request: from its bytes to the last byte of its answer.

The status line waits for `Started`, so that every refusal has its status.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog
from starlette.responses import Response

from minedraft.api import Delta, Finished, Started
from minedraft.errors import MineDraftError, RequestAbortedError
from minedraft.services.gateway.attendance import Attendance
from minedraft.services.gateway.body import parse
from minedraft.services.gateway.chunks import DONE, Chunks
from minedraft.services.gateway.merge import merged
from minedraft.services.gateway.refusal import BUG, refusal_of, upstream_refusal_of
from minedraft.services.gateway.reply import Heading, Reply
from minedraft.services.gateway.request_body import read_body
from minedraft.services.gateway.totals import Totals
from minedraft.services.gateway.whole import Whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from minedraft.client import GenerationStream
    from minedraft.services.gateway.asked import Asked
    from minedraft.services.gateway.attendance import Receive
    from minedraft.services.gateway.body import Body
    from minedraft.services.gateway.merge import Told
    from minedraft.services.gateway.outlet import Outlet
    from minedraft.services.gateway.refusal import Refusal
    from minedraft.services.gateway.site import Site

    Events = AsyncGenerator[tuple[int, Told], None]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What came until every prompt had started."""

    started: dict[int, Started] = field(default_factory=dict)
    early: list[tuple[int, Told]] = field(default_factory=list)
    """Events of prompts that started before others."""


class Answer(Response):  # type: ignore[misc]  # typed loosely where it is missing
    """The ASGI application of one request; FastAPI sends what is a response as it is.

    Args:
        site: What all requests share.
        read: Reads its body.
    """

    background = None

    def __init__(self, site: Site, read: Callable[[Body], Asked]) -> None:
        self._site = site
        self._read = read

    async def __call__(self, scope: dict[str, Any], receive: Receive, _send: object) -> None:
        """Answer it. What wraps `send` is left out: it would cost something per event."""
        outlet: Outlet = scope["minedraft.outlet"]
        config = self._site.config
        try:
            self._site.check_open()
            raw = await read_body(
                scope,
                receive,
                max_bytes=config.max_body_bytes,
                timeout_s=config.slow_reader_s,
            )
            asked = self._read(parse(raw))
            del raw  # a prompt may be large, and its answer long
            heading = self._heading(asked)
            streams = self._streams(asked)
        except RequestAbortedError:
            return
        except MineDraftError as err:
            await outlet.fail(refusal_of(err))
            return

        async def work() -> None:
            try:
                await self._answer(outlet, asked, heading, streams)
            except Exception:
                log.exception("answer.failed")
                await outlet.fail(BUG)

        attendance = Attendance(receive, outlet, comment_s=config.comment_s, cut=self._site.cut)
        with self._site.busy():
            ended = await attendance.during(work)
        if ended is not None and not isinstance(ended, RequestAbortedError):
            await outlet.fail(refusal_of(ended))

    def _heading(self, asked: Asked) -> Heading:
        facts = self._site.upstream.facts
        return Heading(
            model=facts.check_name(asked.model),
            created=int(time.time()),
            fingerprint=facts.fingerprint,
            num_draft_tokens=facts.server.mode.num_draft_tokens,
        )

    def _streams(self, asked: Asked) -> list[GenerationStream]:
        client = self._site.upstream.client
        if asked.messages is not None:
            return [client.stream(messages=asked.messages, **asked.options)]
        return [client.stream(prompt, **asked.options) for prompt in asked.prompts]

    async def _answer(
        self, outlet: Outlet, asked: Asked, heading: Heading, streams: list[GenerationStream]
    ) -> None:
        async with merged(streams) as events:
            beginning = _Beginning()
            failed = await _begin(beginning, events, len(streams))
            if failed is None:
                started = beginning.started
                totals = Totals(len(streams), asked.n, heading.num_draft_tokens)
                for prompt, event in started.items():
                    totals.start(prompt, event.num_prompt_tokens)
                told = replace(heading, request_id=started[0].request_id, seed=started[0].seed)
                echoes = tuple(str(prompt) for prompt in asked.prompts) if asked.echo else ()
                reply = Reply(asked, told, totals, echoes)
                rest = _chained(beginning.early, events) if beginning.early else events
                failed = await _tell(outlet, reply, rest)
            if failed is not None:
                await outlet.fail(_of_prompt(asked, *failed))


async def _begin(
    beginning: _Beginning, events: Events, num_prompts: int
) -> tuple[int, MineDraftError] | None:
    """Read until every prompt has started; return which failed."""
    async for prompt, event in events:
        if isinstance(event, MineDraftError):
            return prompt, event
        if isinstance(event, Started):
            beginning.started[prompt] = event
        else:
            beginning.early.append((prompt, event))
        if len(beginning.started) == num_prompts:
            break
    return None


async def _tell(outlet: Outlet, reply: Reply, events: Events) -> tuple[int, MineDraftError] | None:
    """Send the answer; return what failed."""
    asked, totals = reply.asked, reply.totals
    chunks = Chunks(reply) if asked.stream else None
    writer = chunks or Whole(reply)
    if chunks is not None:
        await outlet.begin_stream()
        for choice in range(asked.num_choices):
            if data := writer.begin(choice):
                await outlet.write(data)
    n = asked.n
    async for prompt, event in events:
        if isinstance(event, Delta):
            choice = prompt * n + event.index
            totals.add(choice, event)
            data = writer.delta(choice, event)
        elif isinstance(event, Finished):
            choice = prompt * n + event.index
            totals.finish(choice, event)
            data = writer.end(choice, event)
        elif isinstance(event, MineDraftError):
            return prompt, event
        else:
            continue
        if data:
            await outlet.write(data)
    if isinstance(writer, Whole):
        await outlet.whole(200, writer.encoded())
    else:
        await outlet.end((writer.usage() if asked.include_usage else b"") + DONE)
    return None


async def _chained(early: list[tuple[int, Told]], events: Events) -> Events:
    for each in early:
        yield each
    async for each in events:
        yield each


def _of_prompt(asked: Asked, prompt: int, err: MineDraftError) -> Refusal:
    """Say an error of the coordinator; of several prompts, of which."""
    refusal = upstream_refusal_of(err, asked.names)
    if len(asked.prompts) > 1 and refusal.param == "prompt":
        return replace(refusal, message=f"prompt[{prompt}]: {refusal.message}")
    return refusal
