"""Configures structlog, the same way for every process.

Never writes a prompt, an output, a local variable, or the words of an exception that is not ours.
Never makes whoever logs wait or fail (see `log_sink`).
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from minedraft.log_sink import DRAIN_S, LogSink, StderrFace
from minedraft.plain_text import LINES, plain
from minedraft.security.redaction import hide_exception_words, hide_reprs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

USER_DATA: Final = frozenset(
    {
        "bad_words",
        "chat",
        "content",
        "delta",
        "messages",
        "output",
        "output_token_ids",
        "prompt",
        "prompt_token_ids",
        "reference_token_ids",
        "stop",
        "text",
        "token_ids",
    }
)
"""Keys whose values belong to users; a line shows only their length."""
_MOST_OF_AN_EVENT: Final = 200


def configure(
    service: str, *, level: int = logging.INFO, json: bool = True, stream: TextIO | None = None
) -> None:
    """Configure structlog and the standard library's logging, once, at the top of a process.

    Args:
        service: Bound to every line (`coordinator`, `drafter`, `verifier`).
        level: Lowest level written; calls below it cost a no-op.
        json: One JSON object a line for machines, or text for a terminal.
        stream: Where lines go; None: to stderr through a `LogSink`, with everything that Python
            and its libraries write there. stdout stays the program's own.
    """
    out = _to_stderr(service, json=json) if stream is None else stream
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_user_data,
        hide_exception_words,
    ]
    last: list[Processor] = _json_end() if json else _text_end(colors=out.isatty())
    structlog.configure(
        processors=[_Chain([*before, *last])],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    _adopt_standard_logging(before, last, out)
    structlog.contextvars.bind_contextvars(service=service)


def num_dropped() -> int:
    """Return the number of lines that this process could not write."""
    return _stderr.sink.num_dropped if _stderr is not None else 0


def drain(timeout_s: float = DRAIN_S) -> None:
    """Wait until the lines so far are written. Call this before an exit without exit handlers."""
    if _stderr is not None:
        _stderr.finish()
        _stderr.sink.drain(timeout_s)


_stderr: StderrFace | None = None
"""Sink of this process, once configured."""


def _to_stderr(service: str, *, json: bool) -> TextIO:
    """Put a sink before stderr, unless stderr is no file or closed."""
    global _stderr  # noqa: PLW0603  # a process has one stderr

    def note(num_lines: int) -> str:
        event, at = "log.dropped", datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if not json:
            return f"{at} [warning  ] {event} num_lines={num_lines} service={service}\n"
        facts = {"num_lines": num_lines, "event": event, "service": service}
        return dumps({**facts, "level": "warning", "timestamp": at}) + "\n"

    try:
        fd = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # none, none of its own, closed
        return sys.stderr or Path(os.devnull).open("w", encoding="utf-8")
    if _stderr is None:
        atexit.register(drain)
    else:
        _stderr.sink.close()
    _stderr = StderrFace(LogSink(fd, note=note), fd)
    sys.stderr = cast("TextIO", _stderr)  # all of it that anybody uses
    logging.captureWarnings(True)
    return sys.stderr


class _Chain:
    """Runs all processors as one and never raises, whatever a value or its repr does."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self._processors = processors

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:  # noqa: ANN401
        what = event.get("event")
        name = what[:_MOST_OF_AN_EVENT] if isinstance(what, str) else type(what).__name__
        try:
            value: Any = event
            for processor in self._processors:
                value = processor(logger, method, value)
        except structlog.DropEvent:
            raise
        except Exception as err:  # noqa: BLE001  # whatever a value does when it is shown
            return dumps({"event": name, "level": method, "log_error": type(err).__name__})
        return value


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines of the standard library. Names a line that it cannot format. Never raises."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the base's name
        """Write a line."""
        facts = {"event": "log.unformatted", "level": record.levelname.lower()}
        with suppress(OSError, ValueError):  # a stream of the caller's that is full, or closed
            self.stream.write(dumps({**facts, "logger": record.name}) + "\n")


def _json_end() -> list[Processor]:
    # The default transformer copies local variables into the line: prompts among them.
    transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(transformer),
        structlog.processors.JSONRenderer(),
    ]


def _text_end(*, colors: bool) -> list[Processor]:
    def traceback(stream: TextIO, info: ExcInfo) -> None:
        text = io.StringIO()
        structlog.dev.plain_traceback(text, info)
        stream.write(plain(text.getvalue(), keep=LINES))

    renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=traceback)
    return [_make_plain, renderer]


def _adopt_standard_logging(before: list[Processor], last: list[Processor], out: TextIO) -> None:
    """Give asyncio's and the libraries' warnings the same form."""
    handler = _Handler(out)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, hide_reprs], processors=[meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # A traceback for each message that does not parse, as often as a peer likes: whoever reads the
    # message says so, at most once a minute (see `repeats`).
    logging.getLogger("grpc._common").setLevel(logging.CRITICAL)


def _make_plain(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor: escapes control characters in a peer's words."""
    return {key: plain(value) if isinstance(value, str) else value for key, value in event.items()}


def _hide_user_data(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key in USER_DATA & event.keys():
        value = event[key]
        event[key] = f"<{len(value)} hidden>" if hasattr(value, "__len__") else "<hidden>"
    return event
