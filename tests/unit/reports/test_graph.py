from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from lab.lifecycle.compilation import compile_scenario
from lab.reports.graph import FORMATS, Graph, GraphBox, draw, graph_of
from lab.reports.topology import picture_of
from lab.scenario.loader import shipped

SVG = "{http://www.w3.org/2000/svg}"


def graph(name: str) -> Graph:
    return graph_of(name, picture_of(compile_scenario(name).intent))


@pytest.mark.parametrize("name", shipped())
def test_every_machine_segment_and_address_is_in_every_format(name):
    intent = compile_scenario(name).intent
    words = {one.name for one in intent.everything()} | {one.name for one in intent.segments}
    words |= {one.cidr for one in intent.segments}
    words |= {one.address() for one in intent.machines if one.interfaces[0].addresses}
    for format_ in FORMATS:
        text = draw(graph(name), format_)
        assert {word for word in words if word not in text} == set(), format_


@pytest.mark.parametrize("name", shipped())
def test_boxes_of_the_picture_do_not_overlap_and_lines_end_at_them(name):
    drawn = ET.fromstring(draw(graph(name), "svg"))
    width, height = float(drawn.get("width", 0)), float(drawn.get("height", 0))
    boxes = []
    for group in drawn.findall(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        boxes.append((y, x, w, h))
    assert len(boxes) == len(graph(name).boxes)
    for (y, x, w, h), (below, right, *_) in pairwise(sorted(boxes)):
        assert below >= y + h or right >= x + w
    edges = {edge for y, _, _, h in boxes for edge in (y, y + h)}
    lines = drawn.findall(f"{SVG}line")
    assert len(lines) == len(graph(name).edges)
    for line in lines:
        assert {float(line.get("y1", 0)), float(line.get("y2", 0))} <= edges


def test_text_cannot_leave_its_quotes():
    bad = GraphBox("n0", ('a"]<script>', "b\\", "\x1b[2J"))
    drawn = Graph('t"\n', (bad,), (), (("n0",),))
    assert '["a&quot;]&lt;script&gt;<br/>b\\<br/>\\x1b[2J"]' in draw(drawn, "mermaid")
    assert r'[label="a\"]<script>\nb\\\n\\x1b[2J"]' in draw(drawn, "dot")
    assert ET.fromstring(draw(drawn, "svg")).findall(f".//{SVG}script") == []
    assert all("\x1b" not in draw(drawn, one) for one in FORMATS)


def test_many_pods_are_counted_and_not_listed():
    overlay = compile_scenario("overlay").intent
    assert "worker1-p1 10.244.1.4" in draw(graph_of("x", picture_of(overlay)), "dot")
    machine = overlay.machine("worker1")
    crowded = replace(machine, pods=machine.pods * 10)
    others = tuple(crowded if one is machine else one for one in overlay.machines)
    text = draw(graph_of("x", picture_of(replace(overlay, machines=others))), "dot")
    assert re.search(r'label="worker1[^"]*\\n20 pods"', text)
