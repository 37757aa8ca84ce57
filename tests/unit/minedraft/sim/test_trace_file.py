from __future__ import annotations

import pytest

from minedraft.errors import ConfigError, ModelError
from minedraft.sim import trace_file
from minedraft.sim.trace_file import read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def trace(tmp_path):
    def write(text, *, header=HEADER):
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else (header + text).encode())
        return path

    return write


def arrivals(path, **options):
    load = read_trace(path, **options)
    return [(a.arrival_ns, a.num_prompt_tokens, a.max_tokens) for a in load.arrivals]


def test_dates_count_from_the_first(trace):
    text = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9305900,396,109\n"
    assert arrivals(trace(text)) == [(0, 374, 44), (4_250_000_000, 396, 109)]


def test_seconds_and_other_columns_are_fine(trace):
    path = trace("7,5,1.5,3\n\n8,6,2.0,4\n", header="id,ContextTokens,TIMESTAMP,GeneratedTokens\n")
    assert arrivals(path) == [(0, 5, 3), (500_000_000, 6, 4)]


def test_a_part_can_be_taken_faster(trace):
    text = "0,1,1\n10,2,2\n20,3,3\nrubbish\n"
    assert arrivals(trace(text), limit=3, rate_scale=10) == [
        (0, 1, 1),
        (1_000_000_000, 2, 2),
        (2_000_000_000, 3, 3),
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no request in it"),
        ("-1,1,1\n", r"trace.csv:2: TIMESTAMP is '-1'"),
        ("nan,1,1\n", r"trace.csv:2: TIMESTAMP is 'nan'"),
        ("inf,1,1\n", r"trace.csv:2: TIMESTAMP is 'inf'"),
        (",1,1\n", r"trace.csv:2: TIMESTAMP is ''"),
        ("soon,1,1\n", r"trace.csv:2: TIMESTAMP is 'soon'"),
        ("5,1,1\n4,1,1\n", r"trace.csv:3: TIMESTAMP is '4', earlier"),
        ("0,1,1\n1e9,1,1\n", r"trace.csv:3: TIMESTAMP is '1e9', more than a year"),
        ("0,0,1\n", r"trace.csv:2: ContextTokens is '0'"),
        ("0,-3,1\n", r"trace.csv:2: ContextTokens is '-3'"),
        ("0,nan,1\n", r"trace.csv:2: ContextTokens is 'nan'"),
        ("0,1,999999999999\n", r"trace.csv:2: GeneratedTokens is '9+'"),
        ("0,1," + "9" * 6000 + "\n", r"trace.csv:2: GeneratedTokens is '9+'"),
        ("0,1\n", r"trace.csv:2: has 2 columns"),
        ('0,"1,1\n', r"trace.csv: is no CSV"),
    ],
)
def test_a_bad_line_is_named(trace, text, named):
    with pytest.raises(ConfigError, match=named) as caught:
        read_trace(trace(text))
    assert "\n" not in str(caught.value)


def test_a_missing_column_is_named(trace):
    with pytest.raises(ConfigError, match="column GeneratedTokens is missing"):
        read_trace(trace("0,1\n", header="TIMESTAMP,ContextTokens\n"))


def test_an_empty_file_is_named(trace):
    with pytest.raises(ConfigError, match="column TIMESTAMP is missing; the first line has 'noth"):
        read_trace(trace("", header=""))


def test_what_is_no_text_is_named(trace):
    with pytest.raises(ConfigError, match=r"trace.csv: not UTF-8: byte 3"):
        read_trace(trace(b"abc\xff"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_trace(tmp_path / "none.csv")


def test_sizes_are_bounded(trace, monkeypatch):
    monkeypatch.setattr(trace_file, "MAX_REQUESTS", 2)
    with pytest.raises(ConfigError, match=r"trace.csv:4: more than 2 requests"):
        read_trace(trace("0,1,1\n0,1,1\n0,1,1\n"))
    monkeypatch.setattr(trace_file, "MAX_TRACE_BYTES", 20)
    with pytest.raises(ModelError, match="want at most 20 bytes"):
        read_trace(trace("0,1,1\n"))


@pytest.mark.parametrize("rate_scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pace_that_is_none_is_refused(trace, rate_scale):
    with pytest.raises(ConfigError, match="rate_scale="):
        read_trace(trace("0,1,1\n"), rate_scale=rate_scale)
