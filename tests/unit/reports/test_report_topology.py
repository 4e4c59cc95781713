"""Pictures of labs: in the page of a run, and by ``lab graph``."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from lxml import html
from unit.reports.made_runs import FIVE, intent_of, made_run, many_nodes

from lab.lifecycle.compilation import compile_scenario
from lab.matrix.verdict import RunResult
from lab.plan.planner import make_plan
from lab.reports.figures import Measured, Share, shares
from lab.reports.graph import FORMATS, Graph, GraphBox, draw, graph_of
from lab.reports.html import bins, histogram, to_html
from lab.reports.topology import Attachment, Picture, arrange, picture_of
from lab.scenario.loader import load, meant, shipped
from lab.topology import registry
from lab.topology.intent import Intent, Route, Segment


def without(intent: Intent, *kinds: str) -> Intent:
    return replace(intent, machines=tuple(m for m in intent.machines if m.kind not in kinds))


def two_networks() -> Picture:
    """Every node with a card and an address more, and one that holds a gateway."""
    picture = picture_of(intent_of())
    office = Attachment("office", "172.16.126.9")
    return replace(
        picture,
        segments=(*picture.segments, Segment("office", "172.16.126.0/24", 1500)),
        machines=tuple(
            replace(machine, attachments=(office, *machine.attachments), gateways=("10.160.11.1",))
            if machine.kind == "node"
            else machine
            for machine in picture.machines
        ),
    )


def drawn_up(wanted: str) -> Intent:
    return registry.intent(make_plan(load(meant(wanted))))


PICTURES = {
    "two networks": two_networks(),
    "five nodes": picture_of(intent_of()),
    "one node": picture_of(intent_of(FIVE[:1])),
    "no pods": picture_of(intent_of(FIVE, 0)),
    "many pods": picture_of(intent_of(FIVE, 40)),
    "sixty nodes": picture_of(intent_of(many_nodes(60))),
    "seven nodes": picture_of(intent_of(many_nodes(7))),
    "no router": picture_of(without(intent_of(), "router")),
    "nodes only": picture_of(without(intent_of(), "router", "client")),
    "hypervisors": picture_of(drawn_up("kubeinit")),
    "many hypervisors": picture_of(drawn_up("k8s-libvirt-5-40-9")),
    "no machines": picture_of(without(intent_of(), "router", "client", "node")),
}


def page(picture: Picture, emulated: tuple[str, ...] = (), run: RunResult | None = None) -> Any:
    whole = to_html(replace(run or made_run("dead-node"), emulated_nodes=emulated), picture)
    return html.fromstring(whole).get_element_by_id("topology")


def texts(drawn: Any, name: str) -> list[str]:
    return [" ".join(one.text_content().split()) for one in drawn.find_class(name)]


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_every_machine_and_pod_is_drawn_once(picture):
    drawn = page(picture)
    assert sorted(texts(drawn, "name")) == sorted(machine.name for machine in picture.machines)
    pods = [one.get("title").split()[1].rstrip(",") for one in drawn.find_class("pod")]
    assert sorted(pods) == sorted(pod.name for each in picture.machines for pod in each.pods)


@pytest.mark.parametrize("name", ["hypervisors", "many hypervisors"])
def test_a_hypervisor_frames_what_stands_on_it_and_nothing_else(name):
    nodes = [machine for machine in PICTURES[name].machines if machine.kind in {"node", "services"}]
    hosts = {node.name: node.host for node in nodes}
    frames = page(PICTURES[name]).find_class("hypervisor")
    framed = {frame.get("title").split()[1].rstrip(","): texts(frame, "name") for frame in frames}
    assert framed == {
        host: [node for node, on in hosts.items() if on == host]
        for host in dict.fromkeys(hosts.values())
        if host
    }


def test_a_drawing_with_hypervisors_shows_what_carries_the_nodes_segment():
    drawn = page(PICTURES["hypervisors"])
    assert "hypervisor-02 203.0.113.2" in [h3.text_content() for h3 in drawn.iter("h3")]
    assert (
        "cluster 10.0.0.0/24, MTU 1450; carried by VXLAN 1 on UDP 4789 on "
        "hypervisors 203.0.113.0/24, MTU 1500"
    ) in texts(drawn, "caption")
    assert texts(drawn, "os").count("HAProxy, DNS") == 1


def test_the_drawing_names_addresses_systems_tunnel_and_emulation():
    drawn = page(PICTURES["five nodes"], ("win1", "win2"))
    assert texts(drawn, "os").count("Windows, emulated") == 2
    assert {"10.9.176.14", "10.244.3.4"} <= set(texts(drawn, "address"))
    assert "VXLAN 4096 on UDP 4789, pods' MTU 1450" in texts(drawn, "caption")
    assert "1,000 of 1,000 red" in texts(drawn, "health")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("node", "nodes route to each other's pods, pods' MTU 1450"),
        ("router", "router routes to every node's pods, pods' MTU 1450"),
    ],
)
def test_routes_are_named_where_there_is_no_tunnel(kind, words):
    intent = intent_of()
    route = Route("10.244.2.0/24", "eth0", "10.9.176.12")
    machines = tuple(
        replace(each, tunnel=None, routes=(route,) if each.kind == kind else ())
        for each in intent.machines
    )
    assert arrange(picture_of(replace(intent, machines=machines))).carriage == words


def test_hostile_names_are_escaped_in_the_drawing():
    intent = intent_of()
    name = '"><script>x</script>'
    hostile = replace(intent, machines=(replace(intent.machines[0], name=name),))
    drawn = page(picture_of(hostile))
    assert not list(drawn.iter("script"))
    assert texts(drawn, "name") == [name]


@pytest.mark.parametrize(
    ("red", "cells", "level"), [(0, 9, 0), (1, 10, 1), (2, 10, 2), (6, 10, 3), (10, 10, 4)]
)
def test_a_share_has_one_of_five_levels(red, cells, level):
    assert Share(red, cells).level == level


def test_known_limits_do_not_count_in_a_share():
    run = made_run("dead-node")
    found = shares(run)["win1"]
    assert (found.red, found.cells) == (1000, 1000)
    assert found.limits > 0


def test_machines_and_pods_that_no_cell_concerns_are_not_probed():
    run = made_run("healthy")
    result = next(each for each in run.results if each.verdict == "pass" and each.cell.source.node)
    drawn = page(picture_of(intent_of()), run=replace(run, results=(result,)))
    probed = {result.cell.source.name, result.cell.source.node, result.cell.target.name}
    titles = [each.get("title") for each in drawn.find_class("unprobed") if each.get("title")]
    unprobed = {title.split()[1].rstrip(",") for title in titles}
    assert unprobed.isdisjoint(probed)
    assert len(unprobed) > len(FIVE)
    assert texts(drawn, "health").count("not probed") >= len(FIVE) - 2


def test_known_limits_are_probed():
    run = made_run("healthy")
    limit = next(result for result in run.results if result.verdict == "known-limit")
    found = shares(replace(run, results=(limit,)))[limit.cell.source.name]
    assert (found.probed, found.words) == (True, "only known limits")


@pytest.mark.parametrize(
    ("values", "first", "length"),
    [
        ((1.0,), 0, 12),
        ((0.0,), -36, 12),
        ((0.5, 20.0), -12, 36),
        ((9.99,), 0, 12),
        ((10.0,), 12, 12),
    ],
)
def test_bins_cover_whole_decades(values, first, length):
    start, counts = bins(values)
    assert (start, len(counts), sum(counts)) == (first, length, len(values))


def test_a_second_address_and_a_held_gateway_are_named():
    for node in page(two_networks()).find_class("node"):
        assert len(node.xpath("span[@class='address']")) == 2
        assert texts(node, "os")[0].endswith("holds 1 gateway")
        assert "holds gateway 10.160.11.1" in node.get("title")


def test_the_histogram_has_its_bars_decades_and_marks_and_none_without_answers():
    found = histogram(Measured((0.2, 0.4, 7.0), ()))
    assert found is not None
    assert [title for height, title in found.bars if height] == [
        "1 from 0.178 to 0.215 ms",
        "1 from 0.383 to 0.464 ms",
        "1 from 6.81 to 8.25 ms",
    ]
    assert found.decades == ("0.1 ms", "1 ms", "10 ms")
    (p50, left), (p99, right) = found.marks
    assert (p50, p99) == ("p50 0.40 ms", "p99 7.00 ms")
    assert 0 < left < 50 < right < 100
    assert histogram(Measured((), ())) is None


SVG = "{http://www.w3.org/2000/svg}"


def graph(name: str) -> Graph:
    return graph_of(name, picture_of(compile_scenario(name).intent))


@pytest.mark.parametrize("name", shipped())
def test_every_machine_segment_and_address_is_in_every_format(name):
    intent = compile_scenario(name).intent
    words = {machine.name for machine in intent.everything()} | {
        segment.name for segment in intent.segments
    }
    words |= {segment.cidr for segment in intent.segments}
    words |= {machine.address() for machine in intent.machines if machine.interfaces[0].addresses}
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
    addresses = drawn.findall(f"{SVG}text[@class='address']")
    assert len({(address.get("x"), address.get("y")) for address in addresses}) == len(lines)


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
