"""minedraft/log.py."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog
from grpc._common import deserialize

from minedraft import log
from minedraft.errors import ConfigError
from minedraft.v1 import types_pb2

CANARY = "the user's secret"


@pytest.fixture
def stream():
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield io.StringIO()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_service_level_and_time(stream):
    log.configure("verifier", stream=stream)
    structlog.get_logger().info("step.done", step_id=7)
    (line,) = lines(stream)
    assert line["event"] == "step.done"
    assert (line["service"], line["level"], line["step_id"]) == ("verifier", "info", 7)
    assert line["timestamp"].endswith("Z")


def test_lines_below_the_level_are_not_written(stream):
    log.configure("verifier", level=logging.WARNING, stream=stream)
    structlog.get_logger().info("step.done")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("key", sorted(log.USER_DATA))
def test_user_data_is_never_written(stream, key, as_json):
    log.configure("coordinator", json=as_json, stream=stream)
    structlog.get_logger().info("request.started", **{key: CANARY})
    assert CANARY not in stream.getvalue()
    assert f"{len(CANARY)} hidden" in stream.getvalue()


@pytest.mark.parametrize("as_json", [True, False])
def test_tracebacks_carry_no_local_variables(stream, as_json):
    def fails(prompt):
        number = len(prompt)
        return 1 // (number - number)

    log.configure("coordinator", json=as_json, stream=stream)
    try:
        fails(CANARY)
    except ZeroDivisionError:
        structlog.get_logger().exception("request.failed")
    assert "ZeroDivisionError" in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_the_standard_library_writes_the_same_lines(stream):
    log.configure("drafter", stream=stream)
    logging.getLogger("asyncio").warning("slow: %d", 3)
    (line,) = lines(stream)
    assert (line["event"], line["service"], line["level"]) == ("slow: 3", "drafter", "warning")


def test_bytes_of_a_peer_that_do_not_parse_are_no_traceback_of_grpcs(stream):
    log.configure("coordinator", stream=stream)
    deserialize(b"\xff" * 6, types_pb2.ModelInfo.FromString)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_a_value_that_cannot_be_shown_costs_its_line_and_nothing_else(stream, as_json):
    class Hostile:
        def __repr__(self):
            raise ValueError(CANARY)

    log.configure("coordinator", json=as_json, stream=stream)
    structlog.get_logger().info("step.done", value=Hostile())
    logging.getLogger("grpc").error("%d", Hostile())
    first, second = lines(stream)
    assert (first["event"], first["log_error"]) == ("step.done", "ValueError")
    assert (second["event"], second["logger"]) == ("log.unformatted", "grpc")
    assert CANARY not in stream.getvalue()


def test_a_line_for_a_terminal_has_no_escapes_of_a_peer(stream):
    log.configure("coordinator", json=False, stream=stream)
    structlog.get_logger().info("worker.left", why="\x1b]0;pwned\x07\nready address=h:1")
    try:
        raise ConfigError("\x1b[2J")
    except ConfigError:
        logging.getLogger("grpc").exception("\x9b2J\u202e")
    assert stream.getvalue().count("worker.left") == 1
    assert not set(stream.getvalue()) & set("\x1b\x07\x9b\u202e")
    assert "\nready" not in stream.getvalue()
    assert "\\x9b2J\\u202e" in stream.getvalue()


def test_a_library_that_logs_into_a_closed_stream_is_not_told():
    stream = io.StringIO()
    log.configure("test", stream=stream)
    stream.close()
    logging.getLogger("a.library").warning("nobody reads this")
