"""Lets other processes (`child`) tokenize texts, a few at a time, each within its bounds.

The event loop sends bytes and reads bytes. Refuses what waits for its turn in too great a number
or size, and what a worker could not finish: that worker is gone, the caller is told, and nobody
else notices.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from minedraft.errors import (
    InvalidRequestError,
    ProtocolError,
    QueueFullError,
    WorkerUnavailableError,
)
from minedraft.services.coordinator.text import child
from minedraft.services.coordinator.text.wire import FIELDS, PREFIX, Answer, Order, sizes
from minedraft.validation import prompt_too_long

if TYPE_CHECKING:
    from collections.abc import Sequence

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 1024
MAX_WAITING_BYTES: Final = 1 << 26
NUM_WORKERS: Final = 2
"""Texts that are tokenized at a time, so that a slow one does not block the others."""
_START_S: Final = 60.0
"""Longest wait of a text for the process."""
_LOAD_S: Final = 300.0
"""Longest time for the process to load; then the pool restarts it."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 30.0
_BURIAL_S: Final = 5.0
_FORK_S: Final = 10.0
"""Longest time for a worker to report itself; then the pool restarts the forking process."""
_HUNG_S: Final = child.ORDER_WALL_S + 5
"""Longest time of an order. The kernel ends a worker earlier, but not a stopped one."""


TooLong = Callable[[int, int], InvalidRequestError]
"""Builds the error of more tokens (the first number) than there may be (the second)."""


class Texts(Protocol):
    """Turns text into ids, and back."""

    async def encode(
        self,
        text: str,
        *,
        parse_special_tokens: bool,
        max_tokens: int,
        add_special_tokens: bool = True,
        too_long: TooLong = prompt_too_long,
    ) -> tuple[int, ...]:
        """Tokenize a text; refuse more than `max_tokens`."""

    async def encode_chat(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        max_tokens: int,
        max_chars: int,
        too_long: TooLong = prompt_too_long,
    ) -> tuple[int, ...]:
        """Format a conversation and tokenize it; refuse more than `max_tokens`."""

    async def encode_bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the id sequences that spell words."""

    async def decode(
        self, token_ids: tuple[int, ...], *, skip_special_tokens: bool, max_bytes: int
    ) -> str:
        """Turn ids into text; refuse more than `max_bytes` of it."""


@dataclass(slots=True)
class _Worker:
    """A connection to a process that tokenizes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def is_idle(self) -> bool:
        """Whether the worker waits for an order. A dead one does not."""
        if self.reader.at_eof() or self.writer.is_closing():
            return False
        poll = select.poll()  # now, not when the event loop has looked
        poll.register(self.writer.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    async def ask(self, frame: bytes) -> Answer:
        """Send an order and wait for its answer.

        Raises:
            OSError, EOFError: the process is gone.
            ProtocolError: what came is no answer.
        """
        self.writer.write(frame)
        await self.writer.drain()
        header, body = sizes(await self.reader.readexactly(PREFIX.size))
        head = await self.reader.readexactly(header)
        try:
            said = json.loads(head)
        except ValueError as err:
            raise ProtocolError(f"text: a malformed answer: {err}") from err
        return Answer.from_frame(said, await self.reader.readexactly(body))


class TextPool:
    """See the module docstring. Works while `run` does.

    Args:
        model_dir: With the tokenizer.
        fingerprint: Of the tokenizer that the coordinator itself has loaded.
    """

    def __init__(self, model_dir: str, fingerprint: str) -> None:
        self._model_dir = model_dir
        self._fingerprint = fingerprint
        self._control: socket.socket | None = None
        """Socket of the process that forks workers; None while there is none."""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_up = asyncio.Event()
        self._idle: list[_Worker] = []
        self._slots = asyncio.Semaphore(NUM_WORKERS)
        self._num_waiting = self._num_waiting_bytes = 0
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Keep the processes alive; they end with this task."""
        pause_s = _FIRST_PAUSE_S
        async with self._tasks:
            while True:
                began = asyncio.get_running_loop().time()
                why = await self._run_once()
                if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                log.error("text.process_ended", why=why, again_in_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def encode(
        self,
        text: str,
        *,
        parse_special_tokens: bool,
        max_tokens: int,
        add_special_tokens: bool = True,
        too_long: TooLong = prompt_too_long,
    ) -> tuple[int, ...]:
        """See `Texts`.

        Raises:
            InvalidRequestError: it has more tokens, or cannot be tokenized within the bounds.
            QueueFullError: too much waits.
            WorkerUnavailableError: no process to do it.
        """
        order = Order(
            "text",
            (text,),
            parse_special_tokens=parse_special_tokens,
            max_tokens=max_tokens,
            add_special_tokens=add_special_tokens,
        )
        return _only(await self._answer(order), max_tokens, too_long)

    async def encode_chat(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        max_tokens: int,
        max_chars: int,
        too_long: TooLong = prompt_too_long,
    ) -> tuple[int, ...]:
        """See `Texts`. Raises what `encode` does."""
        roles = tuple(role for role, _ in messages)
        contents = tuple(content for _, content in messages)
        order = Order("chat", contents, roles, max_tokens=max_tokens, max_chars=max_chars)
        return _only(await self._answer(order), max_tokens, too_long)

    async def encode_bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """See `Texts`. Raises what `encode` does."""
        answer = await self._answer(Order("bad_words", tuple(words), max_tokens=1 << 20))
        return tuple(map(tuple, answer.ids))

    async def decode(
        self, token_ids: tuple[int, ...], *, skip_special_tokens: bool, max_bytes: int
    ) -> str:
        """See `Texts`.

        Raises:
            InvalidRequestError: their text is longer, or cannot be made within the bounds.
            QueueFullError: too much waits.
            WorkerUnavailableError: no process to do it.
        """
        order = Order(
            "ids", ids=token_ids, skip_special_tokens=skip_special_tokens, max_bytes=max_bytes
        )
        return (await self._answer(order)).text

    async def _answer(self, order: Order) -> Answer:
        field = FIELDS[order.kind]
        try:
            frame = order.to_frame()
        except UnicodeEncodeError as err:
            raise InvalidRequestError(
                f"{field} has a lone surrogate, which is no Unicode character", field=field
            ) from err
        await self._turn(len(frame))
        # A task of its own: a caller that leaves does not stop a worker, so its slot stays taken.
        work = self._tasks.create_task(self._work(frame, field), name="text.work")
        answer = await asyncio.shield(work)
        if isinstance(answer, Exception):
            raise answer
        if answer.error:
            raise InvalidRequestError(answer.error, field=answer.field)
        return answer

    async def _turn(self, size: int) -> None:
        """Wait for a slot."""
        if self._num_waiting >= MAX_WAITING or self._num_waiting_bytes + size > MAX_WAITING_BYTES:
            raise QueueFullError(
                f"{self._num_waiting} texts of {self._num_waiting_bytes} bytes wait to be "
                f"tokenized, want at most {MAX_WAITING} of {MAX_WAITING_BYTES}"
            )
        self._num_waiting += 1
        self._num_waiting_bytes += size
        try:
            async with asyncio.timeout(_START_S):
                await self._is_up.wait()
            await self._slots.acquire()
        except TimeoutError:
            raise WorkerUnavailableError("text: no process to tokenize with yet") from None
        finally:
            self._num_waiting -= 1
            self._num_waiting_bytes -= size

    async def _work(self, frame: bytes, field: str) -> Answer | Exception:
        """Carry out an order, and free its slot. Return errors, so that the task group lives on."""
        worker: _Worker | None = None
        control = self._control
        try:
            worker = await self._worker()
            async with asyncio.timeout(_HUNG_S):
                answer = await worker.ask(frame)
            if not answer.is_last and self._control is control:
                self._idle.append(worker)
                worker = None
            return answer
        except WorkerUnavailableError as err:
            return err
        except (OSError, EOFError, TimeoutError, ProtocolError):
            # Without a worker, or with one that ended with the process that forked it, nothing is
            # said of the text.
            if worker is None or self._control is not control:
                return WorkerUnavailableError("text: the process that tokenizes ended")
            log.warning("text.given_up", field=field, num_bytes=len(frame))
            return InvalidRequestError(
                f"{field}: the model's tokenizer and chat template exceeded their "
                f"bounds of time or memory",
                field=field,
            )
        finally:
            if worker is not None:
                worker.writer.close()
            self._slots.release()

    async def _worker(self) -> _Worker:
        """Take an idle worker, or let the process fork one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_idle():
                return worker
            worker.writer.close()
        if self._control is None:
            raise WorkerUnavailableError("text: the process that tokenizes ended")
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                socket.send_fds(self._control, [b"w"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        process = self._process
        worker = _Worker(*await asyncio.open_unix_connection(sock=ours))
        has_begun = False
        try:
            async with asyncio.timeout(_FORK_S):
                await worker.reader.readexactly(len(child.HELLO))
            has_begun = True
        except TimeoutError:
            if process is not None and process is self._process:
                log.warning("text.process_hangs", pid=process.pid)
                process.kill()
            raise
        finally:
            if not has_begun:  # also if this is cancelled: the pool closes while a worker starts
                worker.writer.close()
        return worker

    async def _run_once(self) -> str:
        """Start the process that forks workers, and watch it; return why it ended."""
        ours, theirs = socket.socketpair()
        process: subprocess.Popen[bytes] | None = None
        loop = asyncio.get_running_loop()
        try:
            with theirs:
                ours.setblocking(False)
                # Not asyncio's: cancelled while it starts one, it waits for ever (Python 3.11).
                starting = loop.run_in_executor(None, _start, self._model_dir, theirs.fileno())
                try:
                    await asyncio.wait((starting,))
                finally:
                    process = await starting
            async with asyncio.timeout(_LOAD_S):
                said = (await loop.sock_recv(ours, 1024)).decode().strip()
            if said != self._fingerprint:
                return "it loaded another tokenizer" if said else "it could not load the tokenizer"
            self._control, self._process = ours, process
            self._is_up.set()
            log.info("text.process_started", pid=process.pid)
            await loop.sock_recv(ours, 1)  # it says nothing more: this is its end
            return "it ended"
        except OSError as err:
            return f"{type(err).__name__}"
        except asyncio.CancelledError:
            if process is not None:
                with suppress(ProcessLookupError):  # not waited for, so its number is its own
                    os.killpg(process.pid, signal.SIGKILL)  # with workers that are busy
            raise
        finally:
            self._control = self._process = None
            self._is_up.clear()
            ours.close()  # at which the process and all workers end
            while self._idle:
                self._idle.pop().writer.close()
            if process is not None:
                await _bury(process)


def _start(model_dir: str, fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 our own module
        [sys.executable, "-P", "-m", child.__name__, model_dir, str(fd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(fd,),
        start_new_session=True,  # a group to kill, and no Ctrl-C from the terminal
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )


async def _bury(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and reap it."""
    process.kill()  # looks first whether it has ended by itself
    if process.returncode is not None:
        return
    fd = os.pidfd_open(process.pid)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        async with asyncio.timeout(_BURIAL_S):
            await ended.wait()
    except TimeoutError:
        log.warning("text.process_remains", pid=process.pid)
    finally:
        loop.remove_reader(fd)
        os.close(fd)
        process.poll()


def _only(answer: Answer, max_tokens: int, too_long: TooLong) -> tuple[int, ...]:
    if not answer.ids:
        raise too_long(answer.num_tokens, max_tokens)
    return tuple(answer.ids[0])
