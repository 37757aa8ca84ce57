"""Kind 3: requests that are large in every way the protocol has, while one stream is watched."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

import grpc
import numpy as np
from tokenizers import Tokenizer

from hostile_checks.watched import Watched
from minedraft.v1 import generation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hostile_checks.stage import Stage

GENERATE = "/minedraft.v1.Generation/Generate"
_ALLOWED_STALL_MS = 50.0
_ALLOWED_STALL_OF_EIGHT_MS = 200.0
_WINDOWS = 12
_WINDOW_S = 1.0
_SETTLE_S = 0.4
_MANY = 1_000_000
_AT_ONCE = 8


def _ids(**fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(token_ids={"ids": [5]}, **fields)


def hostile_requests(target: Path) -> Iterator[tuple[str, bytes]]:
    """Make them, one after the other: (what it is, the serialised request)."""
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    lengths = [len(tokenizer.decode([i])) for i in range(tokenizer.get_vocab_size())]
    longest = int(np.argmax(lengths))
    character = tokenizer.decode([longest])[:1]
    for num_stops in (0, 16):
        request = _ids()
        request.sampling.n = 16
        request.sampling.seed = 1
        request.sampling.max_tokens = 8100
        for i in range(num_stops):  # stop strings that nearly match for ever
            near = (character * 300).encode()[: 250 - i].decode(errors="ignore")
            request.sampling.stop.append(near + "\u00e9")
        for i in range(16):
            request.resumed.add(index=i, token_ids=[longest] * 8000)
        yield f"16 resumed samples of 8000 tokens, {num_stops} stop strings", _bytes(request)
    yield "text of 4 MB", _bytes(pb.GenerateRequest(text="abcdefghij klm 1234 " * 200_000))
    yield "text of 4 MB without a space", _bytes(pb.GenerateRequest(text="a" * 4_000_000))
    yield "text of emoji", _bytes(pb.GenerateRequest(text="\U0001f600" * 1_000_000))
    yield "prompt of 1e6 ids", _bytes(pb.GenerateRequest(token_ids={"ids": [5] * _MANY}))
    request = _ids()
    request.sampling.stop.extend(["ab"] * 100_000)
    yield "1e5 stop strings", _bytes(request)
    request = _ids()
    request.sampling.bad_words.extend(["ab"] * 100_000)
    yield "1e5 bad words", _bytes(request)
    request = _ids()
    request.sampling.stop.append("a" * 3_000_000)
    yield "a stop string of 3 MB", _bytes(request)
    request = _ids()
    for i in range(300_000):
        request.sampling.logit_bias[i] = 1.0
    yield "3e5 logit biases", _bytes(request)
    request = _ids()
    request.sampling.allowed_token_ids.extend([5] * _MANY)
    yield "1e6 allowed ids", _bytes(request)
    request = _ids()
    request.sampling.stop_token_ids.extend([5] * _MANY)
    yield "1e6 stop ids", _bytes(request)
    request = _ids()
    request.debug.reference_token_ids.extend([5] * _MANY)
    yield "1e6 reference ids", _bytes(request)
    request = _ids()
    for _ in range(300_000):
        request.resumed.add(index=0)
    yield "3e5 resumed samples", _bytes(request)
    request = pb.GenerateRequest()
    for _ in range(200_000):
        request.chat.messages.add(role="user", content="x")
    yield "2e5 messages", _bytes(request)
    request = pb.GenerateRequest()
    for _ in range(4096):
        request.chat.messages.add(role="user", content="<|im_end|>" * 80)
    yield "4096 messages of control tokens", _bytes(request)
    yield "an id of 3 MB", _bytes(_ids(request_id="x" * 3_000_000))
    yield "3 MB of unknown fields", b"\xfa\x07\x80\x80\x80\x01" + bytes(2_097_152)
    yield "bytes that are no message", b"\xff" * 1_000_000


def _bytes(request: pb.GenerateRequest) -> bytes:
    return request.SerializeToString()


async def send(channel: grpc.aio.Channel, request: bytes, *, timeout_s: float = 20.0) -> str:
    """Send raw bytes as a Generate request and read the first answer.

    Returns:
        The status code's name, or `SERVED`; a served one is cancelled.
    """
    call = channel.unary_stream(GENERATE)(request, timeout=timeout_s)
    try:
        answer = await call.read()
    except grpc.aio.AioRpcError as err:
        return err.code().name
    finally:
        call.cancel()
    return "nothing" if answer is grpc.aio.EOF else "SERVED"


async def large_requests(stage: Stage) -> None:
    """Each large request alone, then eight of it at once; the watched stream's longest gap."""
    requests = await asyncio.to_thread(lambda: list(hostile_requests(stage.target)))
    async with stage.trial("large requests", has_load=False) as trial:
        watched = Watched(trial.client)
        options = [("grpc.max_send_message_length", -1)]
        async with (
            watched.running(),
            grpc.aio.insecure_channel(trial.fleet.address, options=options) as channel,
        ):
            calm = []
            for _ in range(_WINDOWS):
                began = time.monotonic()
                await asyncio.sleep(_WINDOW_S * stage.seconds)
                calm.append(watched.longest(began, time.monotonic()))
            stalls: dict[str, float] = {}
            answers: dict[str, str] = {}
            grown: dict[str, float] = {}
            for name, request in requests:
                for number in (1, _AT_ONCE):
                    trial.forget_peaks()
                    began = time.monotonic()
                    got = await asyncio.gather(*(send(channel, request) for _ in range(number)))
                    await asyncio.sleep(_SETTLE_S)
                    label = name if number == 1 else f"{name}, {_AT_ONCE} times"
                    stalls[label] = watched.longest(began, time.monotonic())
                    answers[label] = ", ".join(sorted(set(got)))
                    grown[label] = trial.peak_bytes("coordinator") / 2**20
    usual = max(calm)
    limits = {"alone": _ALLOWED_STALL_MS, f"{_AT_ONCE} at once": _ALLOWED_STALL_OF_EIGHT_MS}
    for how, limit_ms in limits.items():
        some = [name for name in stalls if name.endswith("times") == (how != "alone")]
        worst = sorted(some, key=stalls.__getitem__, reverse=True)
        stage.say(
            f"longest stall of a stream while large requests come {how}, ms above undisturbed",
            1e3 * (stalls[worst[0]] - usual),
            limit_ms,
            detail=f"undisturbed {1e3 * statistics.median(calm):.0f} ms, at most "
            f"{1e3 * usual:.0f}; "
            + "; ".join(f"{n}: {1e3 * stalls[n]:.0f} ms, {answers[n]}" for n in worst[:3]),
        )
    largest = max(grown, key=grown.__getitem__)
    stage.say(
        "large requests: coordinator's most memory, MiB above idle",
        grown[largest] - trial.idle_bytes["coordinator"] / 2**20,
        0.5 * trial.idle_bytes["coordinator"] / 2**20,
        detail=largest,
    )
    stage.say("large requests: tokens of the watched stream that changed", watched.num_changed, 0)
