from __future__ import annotations

import io

from rich.console import Console

from minedraft.cli.answers import AnswerBoard


def board(**options):
    return Console(file=io.StringIO(), width=60, **options)


def test_without_a_terminal_whole_lines_carry_their_number():
    console = board()
    with AnswerBoard(["first\nquestion", "second"], console) as answers:
        answers.push(0, "one ")
        answers.push(1, "[x]: two\nthr")
        answers.push(0, "line\n\n")
        answers.push(1, "ee")
        answers.finish(1, "stop")
        answers.finish(0, "length")
    assert console.file.getvalue().splitlines() == [
        "[1] ? first question",
        "[2] ? second",
        "[2] [x]: two",
        "[1] one line",
        "[2] three",
        "[2] (stop)",
        "[1] (length)",
    ]


def test_on_a_terminal_there_is_a_panel_an_answer():
    console = board(force_terminal=True)
    with AnswerBoard(["a?", "b?"], console) as answers:
        answers.push(0, "first line\n" * 20)
        answers.push(1, "[bold]not markup")
        answers.finish(1, "stop")
    shown = console.file.getvalue()
    assert "a?" in shown
    assert "[bold]not markup" in shown
