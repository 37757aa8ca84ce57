"""`auto` follows the table of CPUs, and the log says what was chosen and why."""

from __future__ import annotations

import pytest
import torch
from structlog.testing import capture_logs

from minedraft import cpu
from minedraft.errors import ConfigError
from minedraft.model.dtype import settle_dtype

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def cpuinfo(monkeypatch, tmp_path):
    """A /proc/cpuinfo that a test writes."""
    monkeypatch.setattr(cpu, "_CPUINFO", tmp_path / "cpuinfo")
    for name in cpu._LIMITS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cpuinfo"


def test_a_cpu_without_units_serves_auto_in_float32_and_says_so(cpuinfo):
    cpuinfo.write_text("flags : avx2 fma\n")
    with capture_logs() as logs:
        assert settle_dtype("auto", CPU) == "float32"
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("model.dtype", "info")
    assert (line["dtype"], line["reason"]) == ("float32", "this CPU has no bf16 units")


def test_a_cpu_that_is_fast_in_bf16_serves_auto_in_it(cpuinfo, monkeypatch):
    cpuinfo.write_text("vendor_id : V\ncpu family : 7\nflags : avx512_bf16\n")
    monkeypatch.setattr(cpu, "BF16_GAIN", {("V", 7): 1.5})
    with capture_logs() as logs:
        assert settle_dtype("auto", CPU) == "bfloat16"
    assert "1.50 times as fast on V family 7" in logs[0]["reason"]


def test_bf16_that_was_asked_for_is_served_with_a_warning_where_it_is_slow(cpuinfo):
    cpuinfo.write_text("flags : avx2 fma\n")
    with capture_logs() as logs:
        assert settle_dtype("bfloat16", CPU) == "bfloat16"
    assert [(line["log_level"], line["event"]) for line in logs] == [("warning", "model.dtype")]


@pytest.mark.parametrize(
    ("dtype", "device"), [("float32", CPU), ("float32", GPU), ("bfloat16", GPU)]
)
def test_what_needs_no_choice_needs_no_line(cpuinfo, dtype, device):
    cpuinfo.write_text("flags : avx2 fma\n")
    with capture_logs() as logs:
        assert settle_dtype(dtype, device) == dtype
    assert logs == []


def test_auto_knows_cpus_only(cpuinfo, monkeypatch):
    cpuinfo.write_text("vendor_id : V\ncpu family : 7\nflags : avx512_bf16\n")
    monkeypatch.setattr(cpu, "BF16_GAIN", {("V", 7): 1.5})
    assert settle_dtype("auto", GPU) == "float32"


def test_another_dtype_is_refused(cpuinfo):
    with pytest.raises(ConfigError, match="dtype='int4'"):
        settle_dtype("int4", CPU)
