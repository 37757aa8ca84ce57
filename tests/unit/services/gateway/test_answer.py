"""services/gateway/answer.py: what clients of both endpoints get, over HTTP, from a double."""

from __future__ import annotations

import asyncio
import json
import math

import httpx2
import pytest

from minedraft.api import (
    Delta,
    Finished,
    Message,
    RequestTiming,
    SpeculationStats,
    Started,
    Usage,
)
from minedraft.errors import (
    DeadlineError,
    DrainingError,
    NonFiniteError,
    PreconditionError,
    QueueFullError,
    WorkerUnavailableError,
)
from minedraft.services.gateway import answer
from minedraft.types import FinishReason, Speculation, TokenLogprobs
from tests.unit.services.gateway.conftest import running

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def events_of(text):
    """The JSON of a stream's events; the last one is its end."""
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") for part in parts)
    return [part.removeprefix("data: ") for part in parts]


async def stream(http, path, **body):
    answered = await http.post(path, json={"stream": True, **body})
    assert answered.status_code == 200, answered.text
    assert answered.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events_of(answered.text)
    assert last == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]


def text_of(chunks, index=0, key="text"):
    """The text of a choice, of a completion or (`content`) a chat."""
    found = [
        choice["text"] if key == "text" else choice["delta"].get("content")
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["index"] == index
    ]
    return "".join(part or "" for part in found)


def reasons(chunks):
    return [
        (choice["index"], choice["finish_reason"])
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"] is not None
    ]


async def test_a_completion_is_one_body(http, fake):
    answered = await http.post(COMPLETIONS, json={"prompt": "hi", "max_tokens": 4, "seed": 5})
    assert answered.status_code == 200
    body = answered.json()
    (choice,) = body["choices"]
    assert choice["text"].startswith("w")
    assert choice["text"].count(" ") == 4
    assert choice["finish_reason"] == "length"
    assert choice["index"] == 0
    assert choice["logprobs"] is None
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["model"] == "fake-target"
    assert body["seed"] == 5
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 4
    assert body["usage"]["total_tokens"] == 7
    assert body["system_fingerprint"].startswith("fp_")


async def test_a_chat_is_one_body(http, fake):
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    answered = await http.post(CHAT, json={"messages": messages, "max_completion_tokens": 3})
    body = answered.json()
    message = body["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["content"].count(" ") == 3
    assert body["object"] == "chat.completion"
    asked = fake.requests[-1]
    assert asked.messages == (Message("system", "be brief"), Message("user", "hi"))
    assert asked.sampling.max_tokens == 3


async def test_a_stream_says_the_same_as_one_body(http):
    for path, body, key in (
        (COMPLETIONS, {"prompt": "hi"}, "text"),
        (CHAT, {"messages": [{"role": "user", "content": "hi"}]}, "content"),
    ):
        whole = (await http.post(path, json={**body, "max_tokens": 6})).json()["choices"][0]
        text = whole["text"] if key == "text" else whole["message"]["content"]
        chunks = await stream(http, path, **body, max_tokens=6)
        assert text_of(chunks, key=key) == text
        assert reasons(chunks) == [(0, "length")]
        assert not any("usage" in chunk for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert chunks[0]["object"] == "chat.completion.chunk"


async def test_usage_is_one_more_chunk_and_only_if_asked_for(http):
    options = {"include_usage": True}
    *chunks, last = await stream(http, COMPLETIONS, prompt="hi", stream_options=options)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 7
    assert all(chunk["usage"] is None for chunk in chunks)
    assert reasons(chunks) == [(0, "length")]


async def test_continuous_usage_counts_tokens_not_chunks(http):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await stream(http, COMPLETIONS, prompt="hi", max_tokens=7, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] == 3  # the double says 1 + k // 2 tokens per step
    assert counts[-1] == 7


async def test_what_aiperf_reads_of_speculation(http, fake):
    stats = SpeculationStats(3, 12, 4, 4, (1, 0, 2))

    def script(_request):
        return [
            Started("r", 7, 3),
            Delta(0, (1, 2, 3, 4, 5, 6, 7, 8), "text"),
            Finished(0, FinishReason.STOP, usage=Usage(3, 8, 2), speculation=stats,
                     timing=RequestTiming(2_000_000, 5_000_000, 9_000_000)),
        ]  # fmt: skip

    fake.events = script
    body = (await http.post(COMPLETIONS, json={"prompt": "hi"})).json()
    told = body["metrics"]["speculative_decoding"]
    assert told == {
        "num_spec_tokens": 4,
        "num_spec_steps": 3,
        "num_draft_tokens": 12,
        "num_accepted_draft_tokens": 4,
        "draft_acceptance_rate": pytest.approx(1 / 3),
        "mean_acceptance_length": pytest.approx(1 + 4 / 3),
        "acceptance_histogram": [1, 0, 2, 0, 0],
    }
    assert body["metrics"]["queue_time_ms"] == 2
    assert body["metrics"]["time_to_first_token_ms"] == 5
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    details = body["usage"]["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] == 4
    assert details["rejected_prediction_tokens"] == 8
    options = {"include_usage": True}
    *_, last = await stream(http, COMPLETIONS, prompt="hi", stream_options=options)
    assert last["metrics"] == body["metrics"]


async def test_a_choice_that_ends_early_is_told_and_the_others_go_on(http, fake):
    fake.gate = asyncio.Event()
    ends = [Finished(i, FinishReason.LENGTH, usage=Usage(3, 2)) for i in range(4)]

    async def script(_request):
        yield Started("r", 7, 3)
        for index in range(4):
            yield Delta(index, (index,), f"a{index} ")
        yield Finished(2, FinishReason.STOP, stop_string="x", usage=Usage(3, 1))
        await fake.gate.wait()
        for index in (0, 1, 3):
            yield Delta(index, (index,), f"b{index} ")
            yield ends[index]

    fake._events = script
    body = {"prompt": "hi", "n": 4, "stream": True, "stream_options": {"include_usage": True}}
    async with http.stream("POST", COMPLETIONS, json=body) as answered:
        chunks = []
        async for line in answered.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunks.append(json.loads(line.removeprefix("data: ")))
            if reasons(chunks) == [(2, "stop")]:
                fake.gate.set()
    assert reasons(chunks)[0] == (2, "stop")
    assert sorted(reasons(chunks)) == [(0, "length"), (1, "length"), (2, "stop"), (3, "length")]
    assert [text_of(chunks, i) for i in range(4)] == ["a0 b0 ", "a1 b1 ", "a2 ", "a3 b3 "]
    assert chunks[-1]["usage"]["prompt_tokens"] == 3  # once, however many samples
    assert chunks[-1]["usage"]["completion_tokens"] == 7


async def test_the_stop_string_that_ended_a_choice_is_told_and_so_is_a_stop_id(http, fake):
    ends = [Finished(0, FinishReason.STOP, stop_string="end")]
    fake.events = lambda _request: [Started("r", 7, 3), Delta(0, (9,), "x"), *ends]
    choice = (await http.post(COMPLETIONS, json={"prompt": "hi", "stop": "end"})).json()
    assert choice["choices"][0]["stop_reason"] == "end"
    ends[:] = [Finished(0, FinishReason.STOP, stop_token_id=9)]
    asked = {"prompt": "hi", "stop_token_ids": [9]}
    choice = (await http.post(COMPLETIONS, json=asked)).json()["choices"][0]
    assert choice["stop_reason"] == 9
    choice = (await http.post(COMPLETIONS, json={"prompt": "hi"})).json()["choices"][0]
    assert choice["stop_reason"] is None  # the model's own end


async def test_an_answer_without_a_token_has_one_end_too(http, fake):
    fake.events = lambda _request: [Started("r", 7, 3), Finished(0, FinishReason.ABORT)]
    for path, prompt in ((COMPLETIONS, {"prompt": "a"}), (CHAT, {"messages": [USER]})):
        chunks = await stream(http, path, **prompt)
        assert reasons(chunks) == [(0, "abort")]


USER = {"role": "user", "content": "hi"}


async def test_several_prompts_are_one_answer(http, fake):
    prompts = ["one", "two", "three"]
    singles = [
        (await http.post(COMPLETIONS, json={"prompt": p, "n": 2, "max_tokens": 3})).json()
        for p in prompts
    ]
    body = {"prompt": prompts, "n": 2, "max_tokens": 3}
    whole = (await http.post(COMPLETIONS, json=body)).json()
    assert [choice["index"] for choice in whole["choices"]] == list(range(6))
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts == [choice["text"] for single in singles for choice in single["choices"]]
    assert whole["usage"]["prompt_tokens"] == 9
    assert whole["usage"]["completion_tokens"] == 18
    chunks = await stream(http, COMPLETIONS, **body)
    assert [text_of(chunks, index) for index in range(6)] == texts
    assert sorted(reasons(chunks)) == [(index, "length") for index in range(6)]
    assert len({request.sampling.seed for request in fake.requests[-3:]}) == 1


async def test_prompts_of_token_ids_one_and_many(http, fake):
    await http.post(COMPLETIONS, json={"prompt": [1, 2, 3]})
    assert fake.requests[-1].token_ids == (1, 2, 3)
    fake.requests.clear()
    await http.post(COMPLETIONS, json={"prompt": [[1, 2], [3]]})
    assert {request.token_ids for request in fake.requests} == {(1, 2), (3,)}


async def test_of_several_prompts_one_that_is_bad_refuses_all_and_is_named(http, fake):
    def script(request):
        if request.text == "bad":
            raise_it()
        return [Started("r", 7, 3), Delta(0, (1,), "x"), Finished(0, FinishReason.STOP)]

    def raise_it():
        from minedraft.errors import InvalidRequestError

        raise InvalidRequestError("text is empty, want at least one character", field="text")

    fake.events = script
    for is_stream in (False, True):
        body = {"prompt": ["good", "bad", "good"], "stream": is_stream}
        answered = await http.post(COMPLETIONS, json=body)
        assert answered.status_code == 400
        error = answered.json()["error"]
        assert error["param"] == "prompt"
        assert error["message"].startswith("prompt[1]: prompt is empty")
    assert fake.num_live == 0


ROWS = [
    (QueueFullError("the queue is full"), 429, "rate_limit_error", {"retry-after": "1"}),
    (DrainingError("the service is shutting down"), 503, "server_error", {"retry-after": "1"}),
    (WorkerUnavailableError("no verifier"), 503, "server_error", {"retry-after": "1"}),
    (DeadlineError("too late"), 504, "server_error", {"x-should-retry": "false"}),
    (NonFiniteError("NaN"), 500, "server_error", {"x-should-retry": "false"}),
    (PreconditionError("no chat template"), 400, "invalid_request_error", {}),
]


@pytest.mark.parametrize(("err", "status", "kind", "headers"), ROWS, ids=lambda v: str(v)[:12])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_error_before_the_start_has_its_status(
    http, fake, err, status, kind, headers, is_stream
):
    fake.error = err
    answered = await http.post(COMPLETIONS, json={"prompt": "hi", "stream": is_stream})
    assert answered.status_code == status
    error = answered.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == kind
    assert headers.items() <= dict(answered.headers).items()
    assert len(fake.requests) == 1  # whether to come again is for the client to say


async def test_a_deadline_is_504(fake):
    fake.gate = asyncio.Event()
    async with (
        running(fake, request_timeout_s=0.3) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        answered = await http.post(COMPLETIONS, json={"prompt": "hi"})
        assert answered.status_code == 504
        assert answered.headers["x-should-retry"] == "false"


async def test_a_bug_says_nothing_of_itself(http, monkeypatch):
    def broken(*_args):
        raise RuntimeError("the prompt was: secret")

    monkeypatch.setattr(answer, "Totals", broken)
    answered = await http.post(COMPLETIONS, json={"prompt": "hi"})
    assert answered.status_code == 500
    assert "secret" not in answered.text
    assert answered.json()["error"]["code"] == "internal_error"


async def test_a_failure_after_the_start_is_an_event_and_no_clean_end(http, fake):
    async def script(_request):
        yield Started("r", 7, 3)
        yield Delta(0, (1,), "half ")
        raise NonFiniteError("NaN")

    fake._events = script
    status, text = await _read_all(http, {"prompt": "a", "stream": True})
    assert status == 200
    first, last = events_of(text)
    assert json.loads(first)["choices"][0]["text"] == "half "
    assert json.loads(last)["error"]["code"] == "given_up"
    whole = await http.post(COMPLETIONS, json={"prompt": "a"})
    assert whole.status_code == 500


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("where", ["queued", "running"])
async def test_a_client_that_leaves_ends_its_request_within_a_second(
    address, fake, is_stream, where
):
    fake.gate = asyncio.Event()
    if where == "queued":

        async def script(_request):
            await fake.gate.wait()
            yield Started("r", 7, 3)

        fake._events = script
    reader, writer = await asyncio.open_connection(*address.split(":"))
    body = json.dumps({"prompt": "hi", "stream": is_stream, "max_tokens": 50}).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )
    async with asyncio.timeout(5):
        while not fake.num_live:  # noqa: ASYNC110  # the double tells nobody
            await asyncio.sleep(0.01)
        if where == "running" and is_stream:
            assert b"200 OK" in await reader.readline()
    writer.close()
    async with asyncio.timeout(1):
        await fake.cancelled.wait()


async def test_a_reader_that_takes_nothing_is_cut_and_its_request_aborted(fake):
    async def script(_request):
        yield Started("r", 7, 3)
        while True:
            yield Delta(0, (1,), "x" * 60_000)

    fake._events = script
    async with running(fake, slow_reader_s=0.5) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"), limit=2**14)
        body = json.dumps({"prompt": "hi", "stream": True}).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert b"200 OK" in await reader.readline()
        assert fake.num_live == 1
        async with asyncio.timeout(10):
            while fake.num_live:  # noqa: ASYNC110  # the double tells nobody
                await asyncio.sleep(0.05)
        writer.close()
    assert len(fake.requests) == 1  # it was not resumed


async def test_a_silent_stream_has_comments(fake):
    fake.gate = asyncio.Event()
    async with (
        running(fake, comment_s=0.05) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
    ):
        body = {"prompt": "hi", "stream": True}
        async with http.stream("POST", COMPLETIONS, json=body) as answered:
            lines = answered.aiter_lines()
            async for line in lines:
                if line.startswith(":"):
                    fake.gate.set()
                    break
            assert [line async for line in lines][-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_end_of_the_grace_ends_what_runs_with_a_word(fake, is_stream):
    fake.gate = asyncio.Event()
    stop = asyncio.Event()
    async with (
        running(fake, stop, grace_s=0.2) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=10) as http,
        asyncio.TaskGroup() as group,
    ):
        request = group.create_task(_read_all(http, {"prompt": "hi", "stream": is_stream}))
        async with asyncio.timeout(5):
            while not fake.num_live:  # noqa: ASYNC110  # the double tells nobody
                await asyncio.sleep(0.01)
        stop.set()
    status, text = request.result()
    assert status == (200 if is_stream else 503)
    assert '"code": "draining"' in text


async def _read_all(http, body):
    text = ""
    async with http.stream("POST", COMPLETIONS, json=body) as answered:
        try:
            async for part in answered.aiter_text():
                text += part
        except httpx2.RemoteProtocolError:  # no clean end
            assert body["stream"]
        else:
            assert not body["stream"]
    return answered.status_code, text


LOGPROBS = (
    TokenLogprobs(1, -0.5, ((1, -0.5), (2, -1.25)), b"a", (b"a", "é".encode())),
    TokenLogprobs(3, -math.inf, ((1, -0.5), (2, -1.25))),
)


async def test_logprobs_of_a_completion_hold_the_emitted_token(http, fake):
    fake.events = lambda _request: [
        Started("r", 7, 3), Delta(0, (1, 3), "ab", LOGPROBS), Finished(0, FinishReason.LENGTH),
    ]  # fmt: skip
    body = {"prompt": "hi", "logprobs": 2}
    told = (await http.post(COMPLETIONS, json=body)).json()["choices"][0]["logprobs"]
    assert told["token_logprobs"] == [-0.5, -9999.0]
    assert len(told["tokens"]) == len(told["text_offset"]) == 2
    assert told["tokens"] == ["a", "token_id:3"]
    assert told["text_offset"] == [0, 1]
    for token, logprob, top in zip(
        told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
    ):
        assert top[token] == logprob
    assert len(told["top_logprobs"][1]) == 3
    (chunk, _) = await stream(http, COMPLETIONS, **body)
    assert chunk["choices"][0]["logprobs"] == told
    assert fake.requests[-1].sampling.logprobs == 2


async def test_logprobs_of_a_chat(http, fake):
    fake.events = lambda _request: [
        Started("r", 7, 3), Delta(0, (1, 3), "ab", LOGPROBS), Finished(0, FinishReason.LENGTH),
    ]  # fmt: skip
    body = {"messages": [USER], "logprobs": True, "top_logprobs": 2}
    told = (await http.post(CHAT, json=body)).json()["choices"][0]["logprobs"]["content"]
    assert [entry["logprob"] for entry in told] == [-0.5, -9999.0]
    assert [len(entry["top_logprobs"]) for entry in told] == [2, 3]
    assert told[1]["top_logprobs"][2]["logprob"] == -9999.0
    assert told[0]["top_logprobs"][1] == {"token": "é", "logprob": -1.25, "bytes": [195, 169]}


async def test_every_sampling_field_reaches_the_coordinator(http, fake):
    body = {
        "prompt": "hi", "temperature": 0.5, "top_p": 0.75, "top_k": 5, "min_p": 0.125,
        "repetition_penalty": 1.5, "presence_penalty": 0.25, "frequency_penalty": -0.25,
        "logit_bias": {"5": 2, "7": -1.5}, "max_tokens": 9, "min_tokens": 2, "stop": ["a", "b"],
        "stop_token_ids": [4], "include_stop_str_in_output": True, "ignore_eos": True,
        "skip_special_tokens": False, "bad_words": ["no"], "allowed_token_ids": [1, 2, 3],
        "seed": -1, "logprobs": 0, "n": 3, "priority": -5, "cache_salt": "s",
        "speculative": {"k": 2},
    }  # fmt: skip
    assert (await http.post(COMPLETIONS, json=body)).status_code == 200
    (asked,) = fake.requests
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.75, 5)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.125, 1.5)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.25, -0.25)
    assert dict(sampling.logit_bias) == {5: 2, 7: -1.5}
    assert (sampling.max_tokens, sampling.min_tokens) == (9, 2)
    assert (sampling.stop, sampling.stop_token_ids) == (("a", "b"), (4,))
    assert sampling.include_stop_str_in_output
    assert sampling.ignore_eos
    assert not sampling.skip_special_tokens
    assert (sampling.bad_words, sampling.allowed_token_ids) == (("no",), (1, 2, 3))
    assert (sampling.seed, sampling.logprobs, sampling.n) == (2**64 - 1, 0, 3)
    assert (asked.priority, asked.cache_salt) == (-5, "s")
    assert asked.speculation == Speculation(2)


async def test_an_echo_is_before_the_output(http):
    plain = (await http.post(COMPLETIONS, json={"prompt": "hi"})).json()["choices"][0]["text"]
    body = {"prompt": "hi", "echo": True}
    whole = (await http.post(COMPLETIONS, json=body)).json()["choices"][0]["text"]
    assert whole == f"hi{plain}"
    assert text_of(await stream(http, COMPLETIONS, **body)) == whole


async def test_a_prompt_of_a_megabyte_arrives_whole(http, fake):
    prompt = "é" * 2**19
    assert (await http.post(COMPLETIONS, json={"prompt": prompt})).status_code == 200
    assert fake.requests[-1].text == prompt


async def test_more_than_a_message_is_413_wherever_it_is_found(http, fake):
    answered = await http.post(COMPLETIONS, json={"prompt": "x" * (4 * 2**20)})
    assert answered.status_code == 413
    assert answered.json()["error"]["param"] == "prompt"
    answered = await http.post(COMPLETIONS, json={"prompt": "x" * (13 * 2**20)})
    assert answered.status_code == 413
    assert not fake.requests
    assert (await http.post(COMPLETIONS, json={"prompt": "small"})).status_code == 200


async def test_a_model_that_is_not_served_is_404_and_the_served_one_is_not(http):
    answered = await http.post(COMPLETIONS, json={"prompt": "a", "model": "gpt-5"})
    assert answered.status_code == 404
    assert answered.json()["error"]["code"] == "model_not_found"
    answered = await http.post(COMPLETIONS, json={"prompt": "a", "model": "fake-target"})
    assert answered.status_code == 200


async def test_ids_of_callers_are_echoed_and_never_ours(http, fake):
    headers = {"x-request-id": "same"}
    answered = [
        await http.post(COMPLETIONS, json={"prompt": "a"}, headers=headers) for _ in range(2)
    ]
    assert [each.headers["x-request-id"] for each in answered] == ["same", "same"]
    assert len({each.json()["id"] for each in answered}) == 2
    assert [request.request_id for request in fake.requests] == ["", ""]
