"""What the machine refuses to real processes of the command line: one line, and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from minedraft.api import Delta, Finished, Started
from minedraft.types import FinishReason

ANSWER = "ünïcödé 你好 😀"


@pytest.fixture
def coordinator(fake):
    def answer(request):
        samples = range(request.sampling.n)
        return [
            Started("r", 1, 1),
            *(Delta(i, (1,), ANSWER) for i in samples),
            *(Finished(i, FinishReason.STOP) for i in samples),
        ]

    fake.events = answer
    return fake


@dataclass
class Ended:
    code: int
    out: bytes
    err: str


def run(fake, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=None, **options):
    """Run a command to its end, in an environment that says where the coordinator is."""
    ended = subprocess.run(
        [sys.executable, "-m", "minedraft.cli.main", *arguments],
        stdout=stdout,
        stderr=stderr,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        env={**os.environ, "MINEDRAFT_ADDRESS": fake.address, **(env or {})},
        timeout=18,
        check=False,
        **options,
    )
    return Ended(ended.returncode, ended.stdout, (ended.stderr or b"").decode())


RESULTS = {
    "generate": ("generate", "hi"),
    "generate, json": ("generate", "hi", "--json"),
    "status": ("status",),
    "status, json": ("status", "--json"),
    "chat": ("chat",),
    "help": ("--help",),
    "version": ("--version",),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_stdout_that_is_full_is_one_line(coordinator, tmp_path, name):
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        ended = run(coordinator, *RESULTS[name], stdout=full, input=None)
    assert ended.code == 1
    lines = [line for line in ended.err.splitlines() if "Ctrl-D" not in line]
    assert lines == ["error: stdout: No space left on device"]


@pytest.mark.parametrize("name", ["generate", "help"])
@pytest.mark.parametrize("how", ["reader gone", "closed"])
def test_a_stdout_that_nobody_reads_is_one_line(coordinator, name, how):
    reader, writer = os.pipe()
    os.close(reader)
    options = {"preexec_fn": lambda: os.close(1)} if how == "closed" else {}
    ended = run(coordinator, *RESULTS[name], stdout=writer, **options)
    os.close(writer)
    why = "closed" if how == "closed" else "Broken pipe"
    assert (ended.code, ended.err) == (1, f"error: stdout: {why}\n")


@pytest.mark.parametrize("how", ["reader gone", "full", "closed"])
def test_a_stderr_that_cannot_be_written_costs_nothing_else(coordinator, how):
    reader, writer = os.pipe()
    os.close(reader)
    options = {"preexec_fn": lambda: os.close(2)} if how == "closed" else {}
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        stderr = full if how == "full" else writer
        ended = run(coordinator, "generate", "hi", stderr=stderr, **options)
        refused = run(coordinator, "generate", stderr=stderr, **options)
    os.close(writer)
    assert (ended.code, ended.out.decode()) == (0, f"{ANSWER}\n")
    assert refused.code == 2


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("latin-1", "generate"), *(("ascii", n) for n in ("generate", "status", "generate, json"))],
)
def test_what_a_terminal_cannot_show_is_escaped(coordinator, encoding, name):
    coordinator.says = ANSWER
    ended = run(coordinator, *RESULTS[name], env={"PYTHONIOENCODING": encoding})
    assert ended.code == 0
    text = ended.out.decode(encoding)
    if name.endswith("json"):
        assert json.loads(text)["choices"][0]["text"] == ANSWER
    else:
        assert r"\u4f60\u597d \U0001f600" in text


def test_the_c_locale_is_enough(coordinator):
    ended = run(coordinator, "generate", "hi", env={"LC_ALL": "C", "LANG": "C"})
    assert (ended.code, ended.err.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("serve", "--target=~nouser/x", "--listen=127.0.0.1:0"), "target='~nouser/x'"),
        (("generate", "hi", "--tls-ca=/proc/nope/ca"), "tls_ca='/proc/nope/ca': No such file"),
        (("timeline", "--out=/proc/nope/x.svg"), "/proc/nope/x.svg"),
        (("bench", "--prompts=/dev/null"), "no prompt in it"),
        (("bench", "--prompts=/proc/nope"), "prompts='/proc/nope': No such file"),
        (("bench", "--prompts=/"), "prompts='/': Is a directory"),
        (("generate", b"\xff\xfe"), "messages[0].content="),
        (("coordinator", "--listen=127.0.0.1:0", "--tokenizer=~nouser/x"), "~nouser/x"),
    ],
)
def test_what_the_machine_refuses_is_one_line_that_names_it(fake, arguments, line):
    if arguments[0] == "timeline":
        run(fake, "generate", "hi")
    ended = run(fake, *arguments)
    told = [each for each in ended.err.splitlines() if each.startswith("error: ")]
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert len(told) == 1
    assert line in told[0]


def test_a_log_directory_that_cannot_be_made_is_named(fake, tmp_path):
    (tmp_path / "file").touch()
    ended = run(
        fake,
        "serve",
        f"--target={tmp_path}",
        "--mode=ar",
        f"--log-dir={tmp_path}/file/logs",
        "--listen=127.0.0.1:0",
    )
    told = ended.err.splitlines()  # where bf16 units are forbidden, a line before says so
    assert (ended.code, told[-1]) == (1, f"error: {tmp_path}/file/logs: Not a directory")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", [("generate", "-"), ("chat",)])
def test_a_stdin_that_is_no_text_is_named(coordinator, command):
    reader, writer = os.pipe()
    os.write(writer, b"\xff\xfe\n")
    os.close(writer)
    ended = run(coordinator, *command, stdin=reader, env={"PYTHONIOENCODING": "utf-8:strict"})
    os.close(reader)
    assert ended.code == 1
    assert "error: stdin: not utf-8: byte 0\n" in ended.err
    assert "Traceback" not in ended.err


def test_a_stdin_that_is_closed_is_named(coordinator):
    ended = run(coordinator, "generate", "-", preexec_fn=lambda: os.close(0))
    assert (ended.code, ended.err) == (1, "error: stdin: closed\n")
