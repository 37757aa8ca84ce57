"""Bars: one per stage, in the unit of the stage."""

from __future__ import annotations

import io

from rich.console import Console

from minedraft.hub.progress import RichProgress


def test_each_stage_has_a_bar_in_its_unit():
    out = io.StringIO()
    with RichProgress(Console(file=out, width=120)) as progress:
        progress("download m.gguf", 0, 2_000_000, "bytes")
        progress("download m.gguf", 2_000_000, 2_000_000, "bytes")
        progress("convert m.gguf", 3, 30, "items")
    text = out.getvalue()
    assert "2.0/2.0 MB" in text
    assert "3/30" in text
    assert text.count("convert m.gguf") == 1


def test_bars_go_to_standard_error_by_default(capfd):
    with RichProgress() as progress:
        progress("stage", 1, 1, "items")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "stage" in captured.err
