"""Redacts exceptions for the log: keeps place and type; keeps words only if no user wrote them.

`ValueError: invalid literal ... '<a prompt>'` is how prompts come into logs. Our own errors and the
operating system's name fields, files and limits; the words of every other kind are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError, MineDraftError

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

_SPEAK_FREELY: Final = (MineDraftError, ConfigError, ConnectionError, TimeoutError, MemoryError)
HIDDEN: Final = "<words hidden>"


def without_words(err: BaseException) -> BaseException:
    """Return a replacement with the same type name and traceback, with its causes."""
    return _stand_in(err, {})


def hide_exception_words(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor: replaces the exception of a line."""
    found = event.get("exc_info")
    if isinstance(found, tuple):
        found = found[1]
    elif found is True:
        import sys

        found = sys.exc_info()[1]
    if isinstance(found, BaseException):
        err = without_words(found)
        event["exc_info"] = (type(err), err, err.__traceback__)
    return event


def _stand_in(err: BaseException, known: dict[int, BaseException]) -> BaseException:
    if id(err) in known:  # causes can go in circles
        return known[id(err)]
    name = type(err).__name__
    if isinstance(err, BaseExceptionGroup):
        subs = [_stand_in(sub, known) for sub in err.exceptions]
        made: BaseException = BaseExceptionGroup(f"{len(subs)} errors", subs)
    else:
        made = type(name, (Exception,), {"__module__": type(err).__module__})(_words(err))
    known[id(err)] = made
    made.__traceback__ = err.__traceback__
    if err.__cause__ is not None:
        made.__cause__ = _stand_in(err.__cause__, known)
    if err.__context__ is not None:
        made.__context__ = _stand_in(err.__context__, known)
    made.__suppress_context__ = err.__suppress_context__
    return made


def _words(err: BaseException) -> str:
    if isinstance(err, _SPEAK_FREELY):
        return str(err)
    if isinstance(err, OSError) and err.strerror:
        return err.strerror
    return HIDDEN if str(err) else ""


def hide_reprs(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Structlog processor for lines of the standard library: asyncio quotes a task's exception."""
    record = event.get("_record")
    if record is not None and record.name in {"asyncio", "concurrent.futures"}:
        event["event"] = str(event["event"]).partition("\n")[0]
    return event
