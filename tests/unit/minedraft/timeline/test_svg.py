from __future__ import annotations

from xml.etree import ElementTree as ET

from minedraft.timeline.svg import render
from tests.unit.minedraft.timeline.rotation import spans

NS = "{http://www.w3.org/2000/svg}"


def boxes(text: str) -> list[ET.Element]:
    return [rect for rect in ET.fromstring(text).iter(f"{NS}rect") if len(rect)]


def test_every_span_is_a_box_in_the_lane_of_its_device():
    made = spans(6)
    drawn = boxes(render(made, title="t"))
    assert len(drawn) == len(made)
    lanes = {span.lane: box.get("y") for span, box in zip(made, drawn, strict=True)}
    assert lanes["draft"] != lanes["verify"]
    assert {box.get("y") for box in drawn} == set(lanes.values())


def test_boxes_do_not_overlap_and_stay_inside_the_picture():
    root = ET.fromstring(render(spans(6), title="t"))
    width = float(root.get("width", "0"))
    by_lane: dict[str, float] = {}
    for box in boxes(render(spans(6), title="t")):
        x, lane = float(box.get("x", "")), box.get("y", "")
        assert x >= by_lane.get(lane, 0.0) - 0.15  # coordinates have one decimal
        by_lane[lane] = x + float(box.get("width", ""))
        assert by_lane[lane] <= width


def test_batches_have_colours_of_their_own_and_a_legend():
    made = spans(4)
    text = render(made, title="t")
    colours = {span.batch: box.get("fill") for span, box in zip(made, boxes(text), strict=True)}
    assert len(set(colours.values())) == 2
    assert "batch 0" in text
    assert "batch 1" in text


def test_titles_are_escaped():
    root = ET.fromstring(render(spans(2), title="a<b & c", subtitle='"<x>"'))
    assert any(node.text == "a<b & c" for node in root.iter(f"{NS}text"))


def test_no_spans_are_an_empty_picture():
    assert boxes(render([], title="nothing")) == []


def test_a_step_says_its_facts_on_hover():
    text = render(spans(2), title="t")
    assert "step 1, batch 1, verifier: 28.00 ms, 4 rows, 9 tokens, 5 of 16 drafts accepted" in text
    assert "1 rows of prompt" in text
