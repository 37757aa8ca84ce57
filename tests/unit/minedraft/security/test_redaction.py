from __future__ import annotations

import io
import logging

import pytest
import structlog

from minedraft import log
from minedraft.errors import InvalidRequestError
from minedraft.security.redaction import HIDDEN, without_words

CANARY = "the user's secret"


@pytest.fixture
def stream():
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield io.StringIO()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def raised(err, cause=None):
    try:
        raise err from cause
    except type(err) as caught:
        return caught


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    "err",
    [
        ValueError(CANARY),
        KeyError(CANARY),
        RuntimeError("outer", ValueError(CANARY)),
        raised(OSError("x"), ValueError(CANARY)),
        ExceptionGroup(CANARY, [TypeError(CANARY), ExceptionGroup("x", [ValueError(CANARY)])]),
        UnicodeEncodeError("ascii", CANARY, 0, 1, CANARY),
        OSError(2, "No such file", CANARY),
    ],
    ids=lambda err: type(err).__name__,
)
def test_no_line_has_the_words_of_an_exception(stream, err, as_json):
    log.configure("coordinator", json=as_json, stream=stream)
    try:
        raise err
    except Exception as caught:
        structlog.get_logger().exception("rpc.failed")
        structlog.get_logger().error("rpc.failed", exc_info=caught)
        logging.getLogger("asyncio").error("failed\nfuture: %r", caught, exc_info=caught)
    assert CANARY not in stream.getvalue()
    assert type(err).__name__ in stream.getvalue()
    assert "test_redaction.py" in stream.getvalue()


def test_our_own_errors_and_the_systems_keep_their_words():
    assert str(without_words(InvalidRequestError("sampling.n is 99"))) == "sampling.n is 99"
    assert str(without_words(ConnectionResetError(104, "Connection reset"))) == (
        "[Errno 104] Connection reset"
    )
    assert str(without_words(FileNotFoundError(2, "No such file", "/x"))) == "No such file"
    assert str(without_words(ValueError("x"))) == HIDDEN


def test_causes_and_their_order_stay():
    shown = without_words(raised(TypeError("x"), KeyError("y")))
    assert type(shown).__name__ == "TypeError"
    assert type(shown.__cause__).__name__ == "KeyError"
    assert shown.__traceback__ is not None


def test_causes_that_go_in_a_circle_end():
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first
    shown = without_words(first)
    assert shown.__context__.__context__ is shown
