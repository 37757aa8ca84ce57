"""minedraft/log_sink.py, on real pipes and devices."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from contextlib import closing, suppress

import pytest

from minedraft.log_sink import LogSink, StderrFace

PIPE_BYTES = 4096


def note(num_lines):
    return f"<{num_lines} lost>\n"


class Pipe:
    """A pipe of the least size; `fill` makes it one whose reader has stopped."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def fill(self) -> None:
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"." * PIPE_BYTES)
        os.set_blocking(self.writer, True)

    def read(self) -> str:
        return os.read(self.reader, 1 << 20).decode()

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            with suppress(OSError):
                os.close(fd)


@pytest.fixture
def pipe():
    with closing(Pipe()) as made:
        yield made


@pytest.fixture
def sink(pipe):
    made = LogSink(pipe.writer, note=note, max_bytes=1000)
    yield made
    made.close()
    with suppress(OSError):
        os.close(pipe.reader)  # lets a thread go that waits for it


def test_lines_come_in_order(pipe, sink):
    for i in range(3):
        sink.write(f"line {i}\n")
    assert sink.drain()
    assert pipe.read() == "line 0\nline 1\nline 2\n"


def test_a_reader_that_stops_holds_nobody_up_and_learns_how_much_it_missed(pipe, sink):
    pipe.fill()
    lines = [f"{i:04d}{'x' * 95}\n" for i in range(50)]
    for line in lines:  # would wait for ever at the first
        sink.write(line)
    assert 39 <= sink.num_dropped <= 40, "1,000 bytes wait, and one line is in the thread's hands"
    kept = 50 - sink.num_dropped
    assert not sink.drain(0.05)
    assert pipe.read().strip(".") == ""
    assert sink.drain()
    assert pipe.read() == f"{''.join(lines[:kept])}<{50 - kept} lost>\n"
    sink.write("after\n")
    assert sink.drain()
    assert pipe.read() == "after\n"


def test_a_reader_that_is_gone_costs_lines_and_nothing_else(pipe, sink):
    os.close(pipe.reader)
    sink.write("a\n")
    assert sink.drain()
    sink.write("b\n")  # with a note, which is lost as well
    assert sink.drain()
    assert sink.num_dropped == 2


def test_a_full_disk_costs_lines_which_are_told_of_when_there_is_room():
    target, full = os.memfd_create("log"), os.open("/dev/full", os.O_WRONLY)
    fd = os.dup(full)
    sink = LogSink(fd, note=note)
    sink.write("a\n")
    sink.write("b\n")
    assert sink.drain()
    os.dup2(target, sink._fd)  # room again
    sink.write("c\n")
    assert sink.drain()
    sink.close()
    assert os.pread(target, 100, 0) == b"<2 lost>\nc\n"
    for each in (target, full, fd):
        os.close(each)


def test_a_line_that_was_cut_by_a_full_disk_does_not_swallow_the_next(monkeypatch, pipe, sink):
    calls = []
    real = os.write

    def write(fd, data):
        calls.append(bytes(data))
        if len(calls) == 1:
            return real(fd, data[:3])
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    sink.write("abcdef\n")
    assert sink.drain()
    sink.write("next\n")
    assert sink.drain()
    assert pipe.read() == "abc\n<1 lost>\nnext\n"


def test_a_descriptor_that_somebody_made_non_blocking_is_waited_for(pipe, sink):
    pipe.fill()
    os.set_blocking(pipe.writer, False)
    sink.write("a\n")
    assert not sink.drain(0.05)
    assert pipe.read().strip(".") == ""
    assert sink.drain()
    assert pipe.read() == "a\n"
    assert sink.num_dropped == 0


def test_a_line_may_be_written_while_one_is(sink, monkeypatch):
    inner = sink._enqueue

    def enqueue(piece):  # as a signal handler or a finalizer would
        monkeypatch.setattr(sink, "_enqueue", inner)
        sink.write("inner\n")
        inner(piece)

    monkeypatch.setattr(sink, "_enqueue", enqueue)
    sink.write("outer\n")
    assert sink.drain()


def test_what_is_no_text_is_escaped(pipe, sink):
    sink.write("a\ud800b\n")
    assert sink.drain()
    assert pipe.read() == "a\\ud800b\n"


def test_the_face_passes_whole_lines(pipe, sink):
    face = StderrFace(sink, pipe.writer)
    print("a", "b", file=face, flush=True)
    print("begun", end="", file=face)
    assert sink.drain()
    assert pipe.read() == "a b\n"
    face.finish()
    assert sink.drain()
    assert pipe.read() == "begun\n"


def test_the_face_holds_a_line_without_an_end_up_to_a_bound(pipe):
    with closing(LogSink(pipe.writer, note=note)) as sink:
        face = StderrFace(sink, pipe.writer)
        reader = threading.Thread(target=lambda: os.read(pipe.reader, 1 << 20))
        reader.start()
        face.write("x" * (StderrFace._MAX_CHARS + 1))
        assert face._begun == ""
        reader.join(5)
        os.close(pipe.reader)


WRITES_EVERYTHING = """
import asyncio, logging, sys, threading, traceback, warnings
import structlog
from minedraft import log

log.configure("test")

async def fails():
    raise ValueError("asyncio's")

async def main():
    task = asyncio.create_task(fails())
    await asyncio.wait((task,))
    del task  # its exception was never retrieved: asyncio logs it

asyncio.run(main())
for _ in range(3000):
    structlog.get_logger().info("ours", filling="x" * 1000)
logging.getLogger("grpc").error("grpc's")
logging.getLogger("x").error("%d", "unformatted")
warnings.warn("a warning")
print("printed", file=sys.stderr, flush=True)
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
assert log.num_dropped() > 0
open(sys.argv[1], "w").write("through")
raise SystemExit(7)
"""


@pytest.mark.parametrize("how", ["reader stopped", "reader gone", "disk full", "closed"])
def test_nothing_that_python_writes_to_stderr_waits_or_fails(tmp_path, pipe, how):
    done = tmp_path / "done"
    pipe.fill()
    if how == "reader gone":
        os.close(pipe.reader)
    code = WRITES_EVERYTHING
    if how == "closed":
        code = code.replace("assert log.num_dropped() > 0\n", "import os; os.fstat(1)\n")
        code = f"import os, sys; os.close(2); sys.stderr = None\n{code}"
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        process = subprocess.run(
            [sys.executable, "-c", code, str(done)],
            stderr=full if how == "disk full" else pipe.writer,
            timeout=15,
            check=False,
        )
    assert process.returncode == 7
    assert done.read_text() == "through"
