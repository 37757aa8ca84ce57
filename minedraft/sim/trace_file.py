"""Reads a trace of arrivals: CSV with the columns of the public Azure LLM traces.

Refuses in one line that names the file, the line, the column and the value. Reads nothing without a
bound.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from minedraft.errors import ConfigError
from minedraft.model_files.json_file import read_bytes
from minedraft.sim.load import MAX_REQUESTS, Arrival, Load
from minedraft.types import MAX_MODEL_LEN

if TYPE_CHECKING:
    from pathlib import Path

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
MAX_TRACE_BYTES: Final = 64 << 20
MAX_DURATION_S: Final = 366 * 86_400.0
"""Longest time between the first request of a trace and the last."""


def read_trace(
    path: Path, *, limit: int | None = None, rate_scale: float = 1.0, concurrency: int | None = None
) -> Load:
    """Read a trace.

    Args:
        path: CSV whose first line names the columns `TIMESTAMP` (a date with time, or seconds),
            `ContextTokens` and `GeneratedTokens`; others are ignored. In order of time.
        limit: Take the first so many requests; None: all.
        rate_scale: Requests come so many times as fast.
        concurrency: As in `Load`.

    Raises:
        ConfigError: it is no such file.
        ModelError: it cannot be read.
    """
    if not (math.isfinite(rate_scale) and 0 < rate_scale <= MAX_REQUESTS):
        raise ConfigError(f"rate_scale={rate_scale}: want more than 0, at most {MAX_REQUESTS}")
    content = read_bytes(path, MAX_TRACE_BYTES)
    if content is None:
        raise ConfigError(f"trace={str(path)!r}: no such file")
    try:
        return _load(path, content.decode("utf-8-sig"), limit, rate_scale, concurrency)
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path}: not UTF-8: byte {err.start}") from None
    except csv.Error as err:
        raise ConfigError(f"{path}: is no CSV: {err}") from None


def _load(
    path: Path,
    text: str,
    limit: int | None,
    rate_scale: float,
    concurrency: int | None,
) -> Load:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    places = _places(path, next(rows, []))
    arrivals: list[Arrival] = []
    first_s = last_s = 0.0
    for cells in rows:
        if limit is not None and len(arrivals) >= limit:
            break
        if not any(cells):
            continue
        at = f"{path}:{rows.line_num}"
        if len(arrivals) >= MAX_REQUESTS:
            raise ConfigError(f"{at}: more than {MAX_REQUESTS} requests; take fewer by --requests")
        if len(cells) <= max(places):
            raise ConfigError(f"{at}: has {len(cells)} columns, fewer than the first line names")
        time, num_prompt, num_output = (cells[place].strip() for place in places)
        time_s = _seconds(at, time)
        if not arrivals:
            first_s = last_s = time_s
        _check_order(at, time, last_s - time_s, time_s - first_s)
        last_s = time_s
        arrivals.append(
            Arrival(
                _count(at, PROMPT, num_prompt),
                _count(at, OUTPUT, num_output),
                arrival_ns=round((time_s - first_s) / rate_scale * 1e9),
            )
        )
    if not arrivals:
        raise ConfigError(f"{path}: no request in it")
    return Load(tuple(arrivals), concurrency)


def _places(path: Path, header: list[str]) -> list[int]:
    """Find the columns that are wanted."""
    names = [name.strip() for name in header]
    for wanted in (TIME, PROMPT, OUTPUT):
        if wanted not in names:
            found = ", ".join(names)[:80] or "nothing"
            raise ConfigError(f"{path}: column {wanted} is missing; the first line has {found!r}")
    return [names.index(name) for name in (TIME, PROMPT, OUTPUT)]


def _check_order(at: str, text: str, early_s: float, since_first_s: float) -> None:
    if early_s > 0:
        raise ConfigError(f"{at}: {TIME} is {text!r}, earlier than the line before")
    if since_first_s > MAX_DURATION_S:
        raise ConfigError(f"{at}: {TIME} is {text!r}, more than a year after the first")


def _seconds(at: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
            seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError, OSError):
            seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(f"{at}: {TIME} is {text[:40]!r}, want a date with time, or seconds >= 0")
    return seconds


def _count(at: str, column: str, text: str) -> int:
    try:
        value = int(text) if len(text) <= 12 else -1  # noqa: PLR2004 no number of thousands of digits
    except ValueError:
        value = -1
    if not 1 <= value <= MAX_MODEL_LEN:
        raise ConfigError(f"{at}: {column} is {text[:40]!r}, want 1..{MAX_MODEL_LEN}")
    return value
