"""What others learn of a prompt: nothing, from no log, error, status or timeline."""

from __future__ import annotations

import asyncio
import io
import logging

import grpc
import pytest
import structlog

from minedraft import log
from minedraft.client.options import build_request
from minedraft.errors import MineDraftError
from minedraft.services.coordinator.text.pool import TextPool
from minedraft.services.drafter.draft_engine import DraftEngine
from minedraft.services.verifier.verify_engine import VerifyEngine
from minedraft.transport import public_codec
from minedraft.transport.channel import open_channel
from minedraft.v1 import generation_pb2_grpc
from tests.integration.cluster import cluster

CANARY = "xylophone zeppelin"


class _BugError(Exception):
    """What a bug in a handler raises: its words quote what it choked on."""


@pytest.fixture
def written():
    """Everything all three services log, at debug, as a process would write it."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    before = structlog.get_config()
    stream = io.StringIO()
    log.configure("all", level=logging.DEBUG, stream=stream)
    logging.getLogger().setLevel(logging.DEBUG)
    structlog.configure(cache_logger_on_first_use=False)  # loggers outlive this test
    yield stream
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()


async def _details_of(address: str, request) -> str:
    """All that the wire says about a request's failure."""
    channel = open_channel(address)
    message = public_codec.request_to_proto(request)
    try:
        async for _ in generation_pb2_grpc.GenerationStub(channel).Generate(message, timeout=20):
            pass
    except grpc.aio.AioRpcError as err:
        return f"{err.details()} {err.trailing_metadata()}"
    finally:
        await channel.close()
    raise AssertionError("it did not fail")


REFUSED = [
    {"prompt": CANARY, "stop": [CANARY * 50]},
    {"prompt": CANARY, "stop": [CANARY] * 99},
    {"prompt": CANARY, "bad_words": [CANARY * 50]},
    {"prompt": CANARY, "bad_words": [CANARY] * 99},
    {"prompt": CANARY, "temperature": -1.0},
    {"prompt": CANARY, "max_tokens": 10_000},
    {"prompt": CANARY * 10_000},
    {"messages": [{"role": "user", "content": CANARY}, {"role": "wizard", "content": CANARY}]},
]


@pytest.mark.timeout(120)
async def test_prompts_are_in_no_log_error_status_or_timeline(written, target_dir, monkeypatch):
    async with cluster(target_dir, target_dir, kind="oracle", link="grpc") as c:
        address = c.client.address
        await c.client.generate(CANARY, stop=[CANARY], bad_words=[CANARY], max_tokens=8)
        stream = aiter(c.client.stream(CANARY, max_tokens=300, request_id="left"))
        await anext(stream)
        await stream.aclose()
        seen = []
        for options in REFUSED:
            with pytest.raises(MineDraftError) as caught:
                await c.client.generate(**options)
            seen.append(str(caught.value))
        seen.append(repr(await c.client.status()) + repr(await c.client.timeline()))
        seen.append(await _details_of(address, build_request(CANARY, None, {"stop": ["x" * 999]})))

        def choke(*_args, **_kwargs):
            raise _BugError(CANARY) from ValueError(f"cannot encode {CANARY!r}")

        for place, name in (
            (TextPool, "encode"),  # while the request is taken in
            (VerifyEngine, "step"),  # on the verifier's device
            (DraftEngine, "step"),
        ):
            mark = written.tell()
            with monkeypatch.context() as patched:
                patched.setattr(place, name, choke)
                request = build_request(CANARY, None, {"max_tokens": 8})
                failing = asyncio.create_task(_details_of(address, request))
                if place is TextPool:
                    seen.append(await failing)
                else:
                    await _until(lambda at=mark: _BugError.__name__ in written.getvalue()[at:])
                    failing.cancel()
                    await asyncio.wait((failing,))
    for word in CANARY.split():
        assert word not in written.getvalue()
        assert word not in "".join(seen)


async def _until(holds) -> None:
    """Wait; the test's own timeout bounds it."""
    while not holds():  # noqa: ASYNC110 the event is elsewhere
        await asyncio.sleep(0.001)
