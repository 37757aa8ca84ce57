"""services/gateway/answer.py, as the client of OpenAI sees it: sync, async, streams, errors."""

from __future__ import annotations

import asyncio

import openai
import pytest

from minedraft.api import Delta, Started
from minedraft.errors import DeadlineError, NonFiniteError, QueueFullError

USER = {"role": "user", "content": "hi"}


@pytest.fixture
async def client(address):
    async with openai.AsyncOpenAI(
        base_url=f"http://{address}/v1", api_key="EMPTY", timeout=10
    ) as made:
        yield made


async def test_a_completion_and_a_chat_streamed_and_not(client):
    whole = await client.completions.create(model="fake-target", prompt="hi", max_tokens=5)
    text = ""
    async for chunk in await client.completions.create(
        model="fake-target", prompt="hi", max_tokens=5, stream=True,
        stream_options={"include_usage": True},
    ):  # fmt: skip
        text += chunk.choices[0].text if chunk.choices else ""
        usage = chunk.usage
    assert text == whole.choices[0].text
    assert usage == whole.usage
    assert usage.completion_tokens == 5
    chat = await client.chat.completions.create(model="fake-target", messages=[USER])
    assert chat.choices[0].message.role == "assistant"
    content = ""
    async for chunk in await client.chat.completions.create(
        model="fake-target", messages=[USER], stream=True
    ):
        content += chunk.choices[0].delta.content or ""
    assert content == chat.choices[0].message.content
    assert [model.id async for model in client.models.list()] == ["fake-target"]


async def test_the_synchronous_client(address):
    def work():
        with openai.OpenAI(base_url=f"http://{address}/v1", api_key="x", timeout=10) as client:
            extra = {"top_k": 5, "speculative": False, "ignore_eos": True}
            stream = client.completions.create(
                model="", prompt=[1, 2, 3], stream=True, extra_body=extra
            )
            return "".join(chunk.choices[0].text for chunk in stream)

    assert await asyncio.to_thread(work)


async def test_errors_are_the_classes_that_people_catch(client, fake):
    plain = client.with_options(max_retries=0)
    with pytest.raises(openai.BadRequestError) as bad:
        await plain.completions.create(model="", prompt="a", extra_body={"temperature": "x"})
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        await plain.completions.create(model="other", prompt="a")
    fake.error = QueueFullError("full")
    with pytest.raises(openai.RateLimitError):
        await plain.completions.create(model="", prompt="a")


async def test_a_full_queue_is_tried_again_and_a_deadline_is_not(client, fake):
    fake.error = QueueFullError("full")

    async def make_room():
        async with asyncio.timeout(5):
            while not fake.requests:  # noqa: ASYNC110  # the double tells nobody
                await asyncio.sleep(0.01)
        fake.error = None

    async with asyncio.TaskGroup() as group:
        group.create_task(make_room())
        answer = await client.completions.create(model="", prompt="a")
    assert answer.choices[0].text
    assert len(fake.requests) == 2
    fake.requests.clear()
    fake.error = DeadlineError("late")
    with pytest.raises(openai.InternalServerError):
        await client.completions.create(model="", prompt="a")
    assert len(fake.requests) == 1


async def test_a_failure_within_a_stream_raises(client, fake):
    async def script(_request):
        yield Started("r", 7, 3)
        yield Delta(0, (1,), "half ")
        raise NonFiniteError("NaN")

    fake._events = script
    text = ""
    with pytest.raises(openai.APIError, match="gave the request up"):  # noqa: PT012
        async for chunk in await client.completions.create(model="", prompt="a", stream=True):
            text += chunk.choices[0].text
    assert text == "half "
