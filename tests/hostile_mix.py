"""Valid and hostile requests to one coordinator, drawn at random: what a bad neighbourhood sends.

Each deed ends by itself, or is ended by `end`. What comes of it is checked where it can be known:
an exact output, a typed error of few classes, or no more than an end.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc

from minedraft.api import ResumedSample
from minedraft.client.options import build_request
from minedraft.errors import (
    DeadlineError,
    DuplicateRequestError,
    InvalidRequestError,
    MineDraftError,
    PreconditionError,
)
from minedraft.transport import public_codec
from minedraft.types import FinishReason
from tests import h2

if TYPE_CHECKING:
    from minedraft.client import Client

PROMPTS = tuple(tuple(range(3 + 7 * i, 12 + 11 * i)) for i in range(4))
NUM_TOKENS = 12
GENERATE = "/minedraft.v1.Generation/Generate"
OUT_OF_RANGE = (
    {"temperature": -1.0},
    {"top_p": 0.0},
    {"n": 2, "temperature": 0.0},
    {"logprobs": 21},
    {"stop": ["x"] * 17},
    {"stop": ["x" * 300]},
    {"logit_bias": {9999: 1.0}},
    {"max_tokens": 10_000},
    {"min_tokens": 9, "max_tokens": 4},
    {"request_id": "x" * 129},
    {"logit_bias": dict.fromkeys(range(5000), 1.0)},
    {"allowed_token_ids": [7] * 50_000},
    {"stop_token_ids": [7] * 50_000},
    {"bad_words": ["word"] * 5000},
)
HUGE_PROMPTS = ([7] * 200_000, "word " * 20_000, "x" * 200_000, [7, 2**31], [])


class HostileMix:
    """Random deeds of several clients.

    Args:
        client: Of the coordinator, without retries.
        channel: To it, for bytes that are no request of ours.
        port: Its port, for bytes that are no gRPC.
        greedy: Prompt -> its greedy output of `NUM_TOKENS`.
        seed: Of the draws.
    """

    def __init__(
        self,
        client: Client,
        channel: grpc.aio.Channel,
        port: int,
        greedy: dict[tuple[int, ...], tuple[int, ...]],
        seed: int,
    ) -> None:
        self._client, self._channel, self._port = client, channel, port
        self._greedy = greedy
        self._rng = random.Random(seed)
        self._sampled: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self._held: list[asyncio.StreamWriter] = []
        self.deeds = (
            self._answer,
            self._sample,
            self._leave,
            self._abort_own,
            self._run_out_of_time,
            self._ask_out_of_range,
            self._ask_for_too_much,
            self._resume_too_much,
            self._guess_the_watched_id,
            self._send_garbage,
            self._call_what_is_not_there,
            self._say_nothing,
            self._stop_half_way,
            self._look,
            self._steer,
        )
        self.done: Counter[str] = Counter()
        self._num_ownerless = self._num_ownerless_ended = 0
        """Guesses without a secret, that began and that ended: anybody may abort such a request."""
        self.watched_id = "nobody"
        """Of a request of somebody else's, to guess."""

    async def run(self, until: float) -> None:
        """One client: a deed after the other, as long as the loop's clock is before `until`."""
        while asyncio.get_running_loop().time() < until:
            await self.do(self._rng.choice(self.deeds))

    async def do(self, deed) -> None:
        """One deed."""
        await deed()
        self.done[deed.__name__.strip("_")] += 1

    async def end(self) -> None:
        """Close the connections that were left open."""
        for writer in self._held:
            writer.close()
        for writer in self._held:
            with suppress(OSError):
                await writer.wait_closed()
        self._held.clear()

    # -- valid ------------------------------------------------------------------------------

    async def _answer(self) -> None:
        prompt = self._rng.choice(PROMPTS)
        got = await self._client.generate(list(prompt), **self._greedily())
        assert got.token_ids == self._greedy[prompt]

    async def _sample(self) -> None:
        """The same seed gives the same samples, whoever else is served."""
        prompt = self._rng.choice(PROMPTS)
        options = {**self._greedily(), "temperature": 0.9, "seed": 3, "n": 2, "logprobs": 1}
        got = await self._client.generate(list(prompt), **options)
        outputs = [choice.token_ids for choice in got.choices]
        assert self._sampled.setdefault(prompt, outputs) == outputs

    async def _leave(self) -> None:
        async for _ in self._client.stream(list(PROMPTS[0]), **self._greedily(200)):
            break

    async def _abort_own(self) -> None:
        stream = self._client.stream(list(PROMPTS[1]), **self._greedily(200))
        async for _ in stream:
            await self._client.abort(stream.request_id)
        assert stream.completion.finish_reason in {FinishReason.ABORT, FinishReason.LENGTH}

    async def _run_out_of_time(self) -> None:
        with suppress(DeadlineError):
            timeout_s = self._rng.uniform(0.001, 0.05)
            await self._client.generate(
                list(PROMPTS[2]), timeout_s=timeout_s, **self._greedily(200)
            )

    def _greedily(self, max_tokens: int = NUM_TOKENS) -> dict:
        return {"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True}

    # -- out of range -----------------------------------------------------------------------

    async def _ask_out_of_range(self) -> None:
        options = {"temperature": 1.0, **self._rng.choice(OUT_OF_RANGE)}
        await self._refused(list(PROMPTS[0]), InvalidRequestError, options)

    async def _ask_for_too_much(self) -> None:
        await self._refused(self._rng.choice(HUGE_PROMPTS), InvalidRequestError, {"max_tokens": 4})

    async def _resume_too_much(self) -> None:
        resumed = (ResumedSample(0, (7,) * self._rng.choice((10, 1000, 100_000))),)
        request = build_request(list(PROMPTS[0]), None, {"max_tokens": 4, "seed": 1})
        message = public_codec.request_to_proto(replace(request, resumed=resumed))
        assert await self._status_of(message.SerializeToString()) in {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.OK,
        }

    async def _guess_the_watched_id(self) -> None:
        options = {**self._greedily(), "request_id": self.watched_id, "seed": 1}
        request = build_request(list(PROMPTS[0]), None, options)
        guess = replace(
            request,
            resume_token=self._rng.randbytes(self._rng.choice((0, 16, 64))),
            resumed=(ResumedSample(0, ()),) if self._rng.random() < 0.5 else (),
        )
        message = public_codec.request_to_proto(guess)
        self._num_ownerless += not guess.resume_token
        status = await self._status_of(message.SerializeToString())
        self._num_ownerless_ended += not guess.resume_token
        # OK: it has ended meanwhile, and its id is free.
        assert status in {grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.OK}
        num_ended = self._num_ownerless_ended
        num_aborted = await self._client.abort(self.watched_id)
        # Another guess may have got a free id just now.
        assert num_aborted == 0 or self._num_ownerless > num_ended

    async def _refused(self, prompt, error: type[MineDraftError], options: dict) -> None:
        try:
            await self._client.generate(prompt, **options)
        except (error, DuplicateRequestError):
            return
        raise AssertionError(f"{sorted(options)} of {len(prompt)} was not refused")

    # -- no request at all ------------------------------------------------------------------

    async def _send_garbage(self) -> None:
        size = self._rng.choice((1, 100, 100_000))
        assert await self._status_of(self._rng.randbytes(size)) is not grpc.StatusCode.OK

    async def _call_what_is_not_there(self) -> None:
        method = self._rng.choice(("/nobody.knows/This", "/minedraft.v1.Admin/Shutdown"))
        assert await self._status_of(b"", method) is grpc.StatusCode.UNIMPLEMENTED

    async def _say_nothing(self) -> None:
        """A connection without a word, or of another protocol; some stay to the end."""
        data = self._rng.choice((b"", b"GET / HTTP/1.1\r\n\r\n", self._rng.randbytes(1000)))
        await self._connect(data)

    async def _stop_half_way(self) -> None:
        """A call whose message does not come, or only its beginning."""
        data = h2.HELLO + h2.call(GENERATE)
        if self._rng.random() < 0.5:
            data += h2.message(b"x" * 1000)[:200]
        await self._connect(data)

    async def _connect(self, data: bytes) -> None:
        with suppress(OSError):
            _, writer = await h2.connect(self._port, data)
            self._held.append(writer)
        if len(self._held) > 64:
            self._held.pop(0).close()

    async def _status_of(self, message: bytes, method: str = GENERATE) -> grpc.StatusCode:
        call = self._channel.unary_stream(method)(message, timeout=30)
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as err:
            return err.code()
        return grpc.StatusCode.OK

    # -- looking and steering ---------------------------------------------------------------

    async def _look(self) -> None:
        await self._client.status()
        await self._client.timeline(max_spans=self._rng.choice((1, 20_000)))
        await self._client.model_info()

    async def _steer(self) -> None:
        num_batches, k = self._rng.choice(((2, 0), (2, 3), (2, 5), (1, 3), (99, 3), (2, 10**6)))
        with suppress(PreconditionError, InvalidRequestError):
            await self._client.set_mode(
                num_batches=num_batches, max_batch_size=4, num_draft_tokens=k
            )
