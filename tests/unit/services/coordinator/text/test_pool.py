"""Real processes: what a text, a template or a tokenizer may do to them, and what others notice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from minedraft.errors import InvalidRequestError, QueueFullError, WorkerUnavailableError
from minedraft.services.coordinator.text import pool as text_pool
from minedraft.services.coordinator.text.pool import TextPool
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from tests.tiny_models import write_tokenizer

pytestmark = [pytest.mark.multiproc, pytest.mark.slow, pytest.mark.timeout(60)]
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
TEMPLATES = {
    "a loop": LOOP,
    "big integers": "{% set n = namespace(x=9999999999) %}{% for i in range(40) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}{{ 'x' if n.x else 'y' }}",
    "a wide field": "{{ '%4000000000d' % 1 }}",
    "a wide filter": "{{ 'x' | center(4000000000) }}",
    "a doubled list": "{% set n = namespace(x=[1]) %}{% for i in range(40) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "a join": "{{ range(99999) | join('x' * 16000000) }}",
}


def directory(path: Path, *, template: str = "", pattern: str = "") -> Path:
    path.mkdir()
    write_tokenizer(path)
    if template:
        config = json.loads((path / "tokenizer_config.json").read_text())
        config["chat_template"] = "{% if messages[0].content == 'hi' %}{{ 'hi' }}{% else %}"
        config["chat_template"] += template + "{% endif %}"
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    if pattern:
        document = json.loads((path / "tokenizer.json").read_text())
        document["pre_tokenizer"] = {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Isolated",
            "invert": False,
        }
        (path / "tokenizer.json").write_text(json.dumps(document))
    return path


@asynccontextmanager
async def pool(path: Path, *, fingerprint: str = ""):
    tokenizer = await asyncio.to_thread(Tokenizer.from_directory, path)
    texts = TextPool(str(path), fingerprint or tokenizer.fingerprint)
    run = asyncio.create_task(texts.run())
    try:
        yield texts, tokenizer
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


def encode(texts: TextPool, text: str, **more):
    options = {"parse_special_tokens": False, "max_tokens": 10_000, **more}
    return texts.encode(text, **options)


def chat(texts: TextPool, content: str):
    return texts.encode_chat([("user", content)], max_tokens=10_000, max_chars=1_000_000)


def children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has its own
    return [int(child) for found in lists for child in found.read_text().split()]


def processes() -> list[int]:
    """Ours that fork workers."""
    name = f"-m\0{text_pool.child.__name__}\0".encode()
    return [p for p in children(os.getpid()) if name in Path(f"/proc/{p}/cmdline").read_bytes()]


async def gone(pid: int) -> None:
    """Wait for the end of a process; the test's own timeout bounds it."""
    while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 the event is elsewhere
        await asyncio.sleep(0.01)


async def test_ids_are_those_of_the_tokenizer(tmp_path):
    async with pool(directory(tmp_path / "m")) as (texts, tokenizer):
        text = "hello <|im_end|> the fox"
        assert await encode(texts, text) == tuple(tokenizer.encode(text))
        assert await encode(texts, text, parse_special_tokens=True) == tuple(
            tokenizer.encode(text, parse_special_tokens=True)
        )
        assert await chat(texts, text) == tuple(tokenizer.encode_chat([("user", text)]))
        words = await texts.encode_bad_words(["fox", "dog"])
        assert words == (*tokenizer.encode_bad_word("fox"), *tokenizer.encode_bad_word("dog"))


async def test_text_of_ids_is_that_of_the_tokenizer(tmp_path):
    async with pool(directory(tmp_path / "m")) as (texts, tokenizer):
        ids = (*tokenizer.encode("hello the fox \U0001f600"), *tokenizer.special_ids, 10**6)
        for skip in (True, False):
            text = await texts.decode(ids, skip_special_tokens=skip, max_bytes=10_000)
            assert text == tokenizer.decode(ids, skip_special_tokens=skip)
        ids = await encode(texts, "the fox", add_special_tokens=False)
        assert await texts.decode(ids, skip_special_tokens=False, max_bytes=7) == "the fox"
        with pytest.raises(InvalidRequestError, match="7 bytes, want at most 6") as caught:
            await texts.decode(ids, skip_special_tokens=False, max_bytes=6)
        assert caught.value.field == "token_ids"


async def test_what_is_refused_is_refused_in_the_tokenizers_words(tmp_path):
    async with pool(directory(tmp_path / "m", template="{{ raise_exception('no') }}")) as (
        texts,
        _,
    ):
        with pytest.raises(InvalidRequestError, match="refused them: no") as caught:
            await chat(texts, "x")
        assert caught.value.field == "chat.messages"
        with pytest.raises(InvalidRequestError, match="Unicode"):
            await encode(texts, "\ud800")
        with pytest.raises(InvalidRequestError, match=r"prompt has 11 tokens, want fewer .* 10 "):
            await encode(texts, "\x00" * 11, max_tokens=10)
        with pytest.raises(InvalidRequestError, match="a prompt of more than 1 char"):
            await texts.encode_chat([("user", "hi")], max_tokens=9, max_chars=1)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
async def test_a_template_without_end_is_ended_and_others_are_served_meanwhile(tmp_path, template):
    async with pool(directory(tmp_path / "m", template=template)) as (texts, tokenizer):
        await encode(texts, "x")
        hostile = asyncio.create_task(chat(texts, "x"))
        for _ in range(20):
            assert await encode(texts, "the fox") == tuple(tokenizer.encode("the fox"))
        with pytest.raises(InvalidRequestError, match=r"tokenizer|template") as caught:
            await hostile
        assert caught.value.field == "chat.messages"
        assert await chat(texts, "hi") == tuple(tokenizer.encode_chat([("user", "hi")]))


async def test_a_pattern_that_backtracks_costs_one_request(tmp_path):
    async with pool(directory(tmp_path / "m", pattern="(a+)+$")) as (texts, tokenizer):
        with pytest.raises(InvalidRequestError, match="tokenizer"):
            await encode(texts, "a" * 40 + "b c")
        assert await encode(texts, "b c") == tuple(tokenizer.encode("b c"))


async def test_a_caller_that_leaves_frees_its_place_in_the_queue_and_no_worker(tmp_path):
    async with pool(directory(tmp_path / "m", template=LOOP)) as (texts, _):
        await chat(texts, "hi")
        loops = [asyncio.create_task(chat(texts, "x")) for _ in range(8)]
        await asyncio.sleep(0)
        for task in loops:
            task.cancel()
        await asyncio.wait(loops)
        assert await chat(texts, "hi")
        (process,) = processes()
        assert len(children(process)) <= text_pool.NUM_WORKERS


async def test_all_processes_end_with_the_pool_also_those_at_work(tmp_path):
    async with pool(directory(tmp_path / "m", template=LOOP)) as (texts, _):
        await chat(texts, "hi")
        (process,) = processes()
        (worker,) = children(process)
        hostile = asyncio.create_task(chat(texts, "x"))
        await asyncio.sleep(0)
    with pytest.raises((InvalidRequestError, WorkerUnavailableError, asyncio.CancelledError)):
        await hostile
    await gone(worker)
    assert not processes()


async def test_signals_of_the_terminal_do_not_end_them(tmp_path):
    async with pool(directory(tmp_path / "m")) as (texts, _):
        await encode(texts, "x")
        (process,) = processes()
        for pid in (process, *children(process)):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGINT)
        assert await encode(texts, "x")
        assert processes() == [process]


async def test_a_worker_or_the_process_that_is_killed_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(text_pool, "_FIRST_PAUSE_S", 0.01)
    async with pool(directory(tmp_path / "m")) as (texts, _):
        want = await encode(texts, "x")
        (process,) = processes()
        (worker,) = children(process)
        os.kill(worker, signal.SIGKILL)
        await gone(worker)
        assert await encode(texts, "x") == want
        os.kill(process, signal.SIGKILL)
        while processes() in ([], [process]):  # noqa: ASYNC110 the event is elsewhere
            await asyncio.sleep(0.01)
        assert await encode(texts, "x") == want
        assert processes() != [process]


async def test_a_process_that_is_frozen_is_replaced_and_its_text_is_not_blamed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(text_pool, "_FIRST_PAUSE_S", 0.01)
    async with pool(directory(tmp_path / "m")) as (texts, _):
        want = await encode(texts, "x")
        (process,) = processes()
        (worker,) = children(process)
        os.kill(worker, signal.SIGKILL)
        await gone(worker)
        os.kill(process, signal.SIGSTOP)
        monkeypatch.setattr(text_pool, "_FORK_S", 0.05)
        with pytest.raises(WorkerUnavailableError, match="ended"):
            await encode(texts, "x")
        monkeypatch.setattr(text_pool, "_FORK_S", 10.0)
        while processes() in ([], [process]):  # noqa: ASYNC110 the event is elsewhere
            await asyncio.sleep(0.01)
        assert await encode(texts, "x") == want


@pytest.mark.parametrize(
    "said",
    [
        text_pool.PREFIX.pack(1 << 30, 0),
        text_pool.PREFIX.pack(2, 0) + b"no",
        text_pool.PREFIX.pack(2, 0) + b"{}",
    ],
)
async def test_an_answer_that_is_none_costs_one_request(tmp_path, said):
    async with pool(directory(tmp_path / "m")) as (texts, tokenizer):
        await encode(texts, "x")
        ours, theirs = socket.socketpair()
        with theirs:
            streams = await asyncio.open_unix_connection(sock=ours)
            texts._idle.append(text_pool._Worker(*streams))
            hostile = asyncio.create_task(encode(texts, "x"))
            assert await asyncio.to_thread(theirs.recv, 1)
            theirs.sendall(said)
            with pytest.raises(InvalidRequestError, match="tokenizer"):
                await hostile
        assert await encode(texts, "x") == tuple(tokenizer.encode("x"))


async def test_a_worker_that_died_while_it_was_idle_is_no_texts_fault(tmp_path):
    async with pool(directory(tmp_path / "m")) as (texts, _):
        want = await encode(texts, "x")
        (process,) = processes()
        (worker,) = children(process)
        os.kill(worker, signal.SIGKILL)
        while Path(f"/proc/{worker}").exists():  # the event loop must not notice
            pass
        assert await encode(texts, "x") == want


async def test_another_tokenizer_than_the_coordinators_own_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(text_pool, "_START_S", 1.0)
    async with pool(directory(tmp_path / "m"), fingerprint="other") as (texts, _):
        with pytest.raises(WorkerUnavailableError, match="no process to tokenize with"):
            await encode(texts, "x")


async def test_a_process_that_never_loads_is_started_again(tmp_path, monkeypatch):
    real, stuck = text_pool._start, []

    def start(model_dir: str, fd: int) -> subprocess.Popen[bytes]:
        if stuck:
            return real(model_dir, fd)
        stuck.append(subprocess.Popen(["sleep", "60"], pass_fds=(fd,), start_new_session=True))
        return stuck[0]

    monkeypatch.setattr(text_pool, "_start", start)
    monkeypatch.setattr(text_pool, "_LOAD_S", 0.05)
    async with pool(directory(tmp_path / "m")) as (texts, tokenizer):
        while not stuck or stuck[0].returncode is None:  # noqa: ASYNC110 the event is elsewhere
            await asyncio.sleep(0.01)
        monkeypatch.setattr(text_pool, "_LOAD_S", 60.0)
        assert await encode(texts, "x") == tuple(tokenizer.encode("x"))


async def test_what_waits_for_its_turn_is_bounded_in_number_and_size(tmp_path, monkeypatch):
    monkeypatch.setattr(text_pool, "MAX_WAITING", 3)
    async with pool(directory(tmp_path / "m", template=LOOP)) as (texts, _):
        await chat(texts, "hi")
        tasks = [asyncio.create_task(chat(texts, "x")) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match=r"3 texts of .* bytes wait"):
            await encode(texts, "x")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        monkeypatch.setattr(text_pool, "MAX_WAITING_BYTES", 1000)
        with pytest.raises(QueueFullError, match="want at most 3 of 1000"):
            await encode(texts, "x" * 1000)


async def test_a_worker_ends_after_a_large_text_and_its_answer_counts(tmp_path):
    async with pool(directory(tmp_path / "m", template="{{ 'short' }}")) as (texts, tokenizer):
        want = tuple(tokenizer.encode("short"))
        assert await chat(texts, "x") == want
        (idle,) = texts._idle
        assert await chat(texts, "x" * (1 << 20)) == want
        assert texts._idle == []
        assert await chat(texts, "x") == want
        assert texts._idle != [idle]


async def test_a_pool_that_ends_while_it_forks_a_worker_closes_the_connection(
    tmp_path, monkeypatch
):
    connect, writers = asyncio.open_unix_connection, []

    async def recorded(**kwargs):
        reader, writer = await connect(**kwargs)
        writers.append(writer)
        return reader, writer

    monkeypatch.setattr(asyncio, "open_unix_connection", recorded)
    async with pool(directory(tmp_path / "m")) as (texts, _):
        await asyncio.wait_for(texts._is_up.wait(), 30)
        os.kill(texts._process.pid, signal.SIGSTOP)  # the worker never says hello
        asking = asyncio.create_task(encode(texts, "x"))
        while not writers:  # noqa: ASYNC110 until the worker is asked for
            await asyncio.sleep(0)
    assert writers[0].is_closing()
    with pytest.raises((WorkerUnavailableError, asyncio.CancelledError)):
        await asking
