from __future__ import annotations

import json
from xml.etree import ElementTree as ET


def test_picture_and_trace_are_written(minedraft, tmp_path):
    minedraft("generate", "hi", "--max-tokens", "12")
    picture, trace = tmp_path / "new" / "p.svg", tmp_path / "t.json"
    result = minedraft("timeline", "--out", str(picture), "--trace", str(trace))
    assert result.exit_code == 0
    assert str(picture) in result.stderr.replace("\n", "")
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert len(json.loads(trace.read_text())["traceEvents"]) > 3


def test_nothing_to_draw_or_nowhere_to_write_is_an_error(minedraft, tmp_path):
    result = minedraft("timeline", "--out", str(tmp_path / "p.svg"))
    assert result.exit_code == 1
    assert "no step yet" in result.stderr
    assert "give --out" in minedraft("timeline").stderr
    minedraft("generate", "hi")
    (tmp_path / "file").touch()
    result = minedraft("timeline", "--out", str(tmp_path / "file" / "p.svg"))
    assert result.exit_code == 1
    assert "cannot write" in result.stderr
