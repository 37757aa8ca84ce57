"""What a hostile coordinator and hostile workers say, on the terminal of whoever looks at them."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree as ET

import pytest

from minedraft import errors
from minedraft.admin import Span
from minedraft.api import Delta, Finished, Started
from minedraft.cli.answers import AnswerBoard
from minedraft.cli.console import PlainConsole, cell
from minedraft.cli.status import view
from minedraft.plain_text import LINES, plain
from minedraft.plans import StepTiming
from minedraft.types import FinishReason

ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x9b2J\x7f\u202e\u2028\r"
HOSTILE = [
    ESCAPES,
    "a[/b]c",
    "[red]x[/red] :smile:",
    "[link=https://evil.example]ok[/link]",
    "gloo: [enforce fail at /x/listener.cc:63] false",
]


@pytest.fixture
def hostile(fake):
    def answer(_request):
        return [Started(fake.says, 1, 1), Delta(0, (1,), fake.says), Finished(0, FinishReason.STOP)]

    fake.events = answer
    return fake


def commands(tmp_path):
    return {
        "generate": ("generate", "hi"),
        "generate, not streamed": ("generate", "hi", "--no-stream"),
        "generate, json": ("generate", "hi", "--json"),
        "status": ("status",),
        "status, json": ("status", "--json"),
        "swap": ("drafter", "swap", "--to", "h:1"),
        "chat": ("chat",),
    }


@pytest.mark.parametrize("says", HOSTILE)
@pytest.mark.parametrize("name", commands(None))
def test_what_a_peer_says_is_shown_as_it_is(minedraft, hostile, tmp_path, name, says):
    hostile.says = says
    result = minedraft(*commands(tmp_path)[name], stdin="hi\n" if name == "chat" else None)
    assert result.exit_code == 0
    text = result.stdout + result.stderr
    assert plain(text, keep=LINES) == text
    if name.endswith("json"):
        assert says in json.dumps(json.loads(result.stdout), ensure_ascii=False) or says == ESCAPES
    else:
        assert plain(says) in text.replace("\n", "")


def test_a_document_keeps_what_was_said(minedraft, hostile):
    hostile.says = ESCAPES
    document = json.loads(minedraft("generate", "hi", "--json").stdout)
    assert document["choices"][0]["text"] == ESCAPES
    assert json.loads(minedraft("status", "--json").stdout)["swaps"]["last_error"] == ESCAPES


def test_a_peer_cannot_write_lines_of_its_own(minedraft, hostile):
    hostile.says = "x\nverifier  h:2  connected"
    assert "\nverifier" not in minedraft("status").stdout
    assert r"x\nverifier" in minedraft("status").stdout.replace("\n", "")
    hostile.error = errors.StateError("a\nerror: b")
    assert minedraft("generate", "hi").stderr == "error: a\\nerror: b\n"


def test_an_answer_keeps_its_lines_and_tabs(minedraft, hostile):
    hostile.says = "a\n\tb"
    assert minedraft("generate", "hi").stdout == "a\n\tb\n"


def test_a_cell_has_an_end():
    assert cell("x" * 10_000).plain == f"{'x' * 500} ..."
    assert cell("\x1b" * 10_000, most=8).plain == r"\x1b\x1b ..."


def test_lines_of_the_log_that_were_lost_are_shown(minedraft, fake):
    assert "log:" not in minedraft("status").stdout
    fake.num_log_lines_dropped = 41
    assert "log: 41 lines could not be written" in minedraft("status").stdout


def test_a_picture_of_hostile_steps_is_well_formed(minedraft, fake, tmp_path):
    minedraft("generate", "hi", "--max-tokens", "8")
    fake.spans.insert(0, Span("</text>\x1b", 0, 1, StepTiming(5, 7), 1, 1))
    picture, trace = tmp_path / "p.svg", tmp_path / "t.json"
    result = minedraft("timeline", "--out", str(picture), "--trace", str(trace))
    assert result.exit_code == 0
    ET.parse(picture)
    assert "text" not in trace.read_text()


def test_answers_side_by_side_are_plain_too(monkeypatch):
    for is_terminal in (True, False):
        console = PlainConsole()
        console._file, console._force_terminal = io.StringIO(), is_terminal
        with AnswerBoard(["a\x1b[2Jprompt"], console) as board:
            board.push(0, "text\x1b]0;pwned\x07\n")
            board.finish(0, "done")
        shown = console._file.getvalue()
        assert r"text\x1b]0;pwned\x07" in shown
        assert "\x1b]0" not in shown
        assert "\x1b[2J" not in shown


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_table_is_drawn_with_what_the_stream_has(encoding):
    from rich.table import Table

    console = PlainConsole()
    raw = io.BytesIO()
    console._file = io.TextIOWrapper(raw, encoding=encoding)
    table = Table("a")
    table.add_row("b")
    console.print(table)
    assert raw.getvalue().decode(encoding)


def test_status_is_plain_on_any_console():
    from rich.console import Console

    from minedraft.admin import Status, WorkerStatus
    from minedraft.types import Mode
    from tests.fake_coordinator import IDENTITY, MODEL

    worker = WorkerStatus("drafter", "h:1", True, IDENTITY, MODEL, last_error="\x1b[2J[red]a[/b]")
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    console.print(view(Status(IDENTITY, Mode(1, 1, 0), workers=(worker,)), "h:0"))
    assert r"\x1b[2J[red]a[/b]" in console.file.getvalue()
