"""The processes that tokenize for the coordinator. A text can harm only its process.

A template may loop for ever, a pattern backtrack, a few bytes become gigabytes, and the library
holds the interpreter's lock or panics; no thread can be stopped at that. So one process loads the
tokenizer, once, and forks a worker for each socket that the coordinator sends it. The kernel ends
a worker that has used up its time or its memory; the next one is a fork away. Refuses to outlive
the coordinator: when that is gone, all end.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from minedraft.errors import InvalidRequestError
from minedraft.exit import end_at_once
from minedraft.services.coordinator.text.tokenizer import Tokenizer
from minedraft.services.coordinator.text.wire import FIELDS, PREFIX, Answer, Order, sizes

if TYPE_CHECKING:
    from minedraft.services.coordinator.text.prompt_encoder import PromptEncoder

ORDER_CPU_S: Final = 1.0
"""CPU time of one order, and again per `BYTES_PER_ORDER_CPU` bytes of its text."""
BYTES_PER_ORDER_CPU: Final = 1 << 19
ORDER_WALL_S: Final = 60.0
MEMORY_BYTES: Final = 1 << 30
"""Address space of an order, beyond that of the loaded tokenizer."""
LARGE_ORDER_BYTES: Final = 1 << 20
"""A worker ends after an order of this size, which frees its memory."""
HELLO: Final = b"w"
"""First byte of a worker: it was forked."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def serve(model_dir: str, control: socket.socket) -> NoReturn:
    """Load, report it, and fork a worker per received socket.

    Args:
        model_dir: With the tokenizer.
        control: A pair's end. Its other end going away ends this process and its workers.
    """
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)  # they are the coordinator's, which drains first
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries workers
    tokenizer = Tokenizer.from_directory(model_dir)
    encoder, fingerprint = tokenizer.prompts, tokenizer.fingerprint
    del tokenizer
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError):  # the coordinator has ended meanwhile
        control.sendall(fingerprint.encode())
    while True:
        said, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not said:
            os.killpg(0, signal.SIGKILL)
        for fd in fds:
            if os.fork() == 0:
                control.close()
                with suppress(Exception, KeyboardInterrupt):
                    orders = socket.socket(fileno=fd)
                    orders.sendall(HELLO)
                    work(encoder, orders)
                end_at_once()
            os.close(fd)


def work(encoder: PromptEncoder, orders: socket.socket) -> None:
    """Answer orders until the coordinator closes the socket."""
    _limit(memory_bytes=_address_space() + MEMORY_BYTES)
    while (prefix := _receive(orders, PREFIX.size)) is not None:
        header_size, body_size = sizes(prefix)
        received = _receive(orders, header_size + body_size)
        if received is None:
            return
        _limit_time(ORDER_CPU_S * (1 + body_size / BYTES_PER_ORDER_CPU), ORDER_WALL_S)
        order = Order.from_frame(json.loads(received[:header_size]), received[header_size:])
        answer = _answer(encoder, order)
        if body_size >= LARGE_ORDER_BYTES:
            answer = replace(answer, is_last=True)
        orders.sendall(answer.to_frame())
        _limit_time(0, 0)
        if answer.is_last:
            return


def _answer(encoder: PromptEncoder, order: Order) -> Answer:
    field = FIELDS[order.kind]
    try:
        if order.kind == "ids":
            return _decode(encoder, order)
        ids = _encode(encoder, order)
    except InvalidRequestError as err:
        return Answer(error=str(err), field=err.field)
    except BaseException as err:  # noqa: BLE001 a panic of the library is no Exception
        # Without its words: they may quote the text.
        why = f"{field}: the model's tokenizer or chat template failed on it: {type(err).__name__}"
        return Answer(error=why, field=field, is_last=True)
    num_tokens = sum(map(len, ids))
    return Answer(ids if num_tokens <= order.max_tokens else (), num_tokens)


def _decode(encoder: PromptEncoder, order: Order) -> Answer:
    text = encoder.decode(order.ids, skip_special_tokens=order.skip_special_tokens)
    num_bytes = len(text.encode())
    if num_bytes > order.max_bytes:
        field = FIELDS[order.kind]
        raise InvalidRequestError(
            f"{field}: their text has {num_bytes} bytes, want at most {order.max_bytes}",
            field=field,
        )
    return Answer(text=text)


def _encode(encoder: PromptEncoder, order: Order) -> list[list[int]]:
    match order.kind:
        case "text":
            (text,) = order.texts
            ids = encoder.encode(
                text,
                parse_special_tokens=order.parse_special_tokens,
                add_special_tokens=order.add_special_tokens,
            )
            return [ids]
        case "chat":
            messages = list(zip(order.roles, order.texts, strict=True))
            return [encoder.encode_chat(messages, max_chars=order.max_chars)]
        case _:
            return [list(ids) for word in order.texts for ids in encoder.encode_bad_word(word)]


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # prompts are in it
    for signum in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(signum, signal.SIG_DFL)  # the kernel ends the process: no handler has to run
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # a panic is told there in words of the text
    os.close(null)


def _limit_time(cpu_s: float, wall_s: float) -> None:
    """Arm the kernel's timers; 0: disarm."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def _receive(sock: socket.socket, size: int) -> bytes | None:
    """Read exactly `count` bytes; None if the other end closes before."""
    received = bytearray()
    while len(received) < size:
        piece = sock.recv(min(size - len(received), 1 << 20))
        if not piece:
            return None
        received += piece
    return bytes(received)


def _address_space() -> int:
    statm = Path("/proc/self/statm").read_text(encoding="ascii")
    return int(statm.split()[0]) * _PAGE_BYTES


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
