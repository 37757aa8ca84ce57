"""Streams several answers side by side: panels on a terminal, prefixed lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from minedraft.plain_text import LINES, plain

if TYPE_CHECKING:
    from typing import Self

_LINES = 6
_STYLES = ("cyan", "yellow", "green", "magenta")


class AnswerBoard:
    """Shows answers as they grow.

    Args:
        prompts: One per answer.
        console: Where to show them. Without a terminal, whole lines with their answer's number.
    """

    def __init__(self, prompts: Sequence[str], console: Console) -> None:
        self._prompts = [plain(" ".join(prompt.split())) for prompt in prompts]
        self._console = console
        self._texts = [""] * len(prompts)
        self._shown = [0] * len(prompts)  # characters already printed, without a terminal
        self._live = Live(console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
            return self
        for i, prompt in enumerate(self._prompts):
            self._line(i, f"? {prompt[:150]}")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.update(self._panels(), refresh=True)
            self._live.stop()

    def push(self, answer: int, text: str) -> None:
        """Add text to an answer."""
        self._texts[answer] += plain(text, keep=LINES)
        if self._live is not None:
            self._live.update(self._panels())
            return
        *whole, _rest = self._texts[answer][self._shown[answer] :].split("\n")
        for line in whole:
            self._shown[answer] += len(line) + 1
            if line.strip():
                self._line(answer, line)

    def finish(self, answer: int, note: str) -> None:
        """Show the rest of an answer and a note about it."""
        if self._live is None:
            self._texts[answer] += "\n"
            self.push(answer, "")
            self._line(answer, f"({note})")

    def _line(self, answer: int, line: str) -> None:
        style = _STYLES[answer % len(_STYLES)]
        text = Text(f"[{answer + 1}] ", style=style).append(line, style="default")
        self._console.print(text, soft_wrap=True)

    def _panels(self) -> Group:
        width = max(20, self._console.width - 4)
        return Group(
            *(
                Panel(
                    Text("\n").join(Text(text).wrap(self._console, width)[-_LINES:]),
                    title=Text(prompt[: width - 8]),
                    title_align="left",
                    border_style=_STYLES[i % len(_STYLES)],
                )
                for i, (prompt, text) in enumerate(zip(self._prompts, self._texts, strict=True))
            )
        )
