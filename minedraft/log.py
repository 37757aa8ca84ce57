"""One structlog setup for every process.

Never writes a prompt, an output, a local variable, or the words of an exception that is not ours.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO

import structlog

from minedraft.security.redaction import hide_exception_words, hide_reprs

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

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
"""Keys whose values belong to the user; a line says only how long they are."""


def configure(
    service: str, *, level: int = logging.INFO, json: bool = True, stream: TextIO | None = None
) -> None:
    """Configure structlog and the standard library's logging, once, at the top of a process.

    Args:
        service: Bound to every line (`coordinator`, `drafter`, `verifier`).
        level: Lowest level written; calls below it cost a no-op.
        json: One JSON object a line for machines, or text for a terminal.
        stream: Where lines go; stderr if None, so that stdout stays the program's own.
    """
    out = sys.stderr if stream is None else stream
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _hide_user_data,
        hide_exception_words,
    ]
    last: list[Processor] = _json_end() if json else _text_end(colors=out.isatty())
    structlog.configure(
        processors=[*before, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    _adopt_standard_logging(before, last, out)
    structlog.contextvars.bind_contextvars(service=service)


def _json_end() -> list[Processor]:
    # The default transformer copies local variables into the line: prompts among them.
    transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(transformer),
        structlog.processors.JSONRenderer(),
    ]


def _text_end(*, colors: bool) -> list[Processor]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _adopt_standard_logging(before: list[Processor], last: list[Processor], out: TextIO) -> None:
    """Give asyncio's and the libraries' warnings the same form."""
    handler = logging.StreamHandler(out)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, hide_reprs], processors=[meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def _hide_user_data(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for key in USER_DATA & event.keys():
        value = event[key]
        event[key] = f"<{len(value)} hidden>" if hasattr(value, "__len__") else "<hidden>"
    return event
