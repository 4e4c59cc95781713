from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from unit.reports.made_runs import FIVE, intent_of, made_run, many_nodes

from lab.plan.planner import make_plan
from lab.reports.figures import Latencies, Share, shares
from lab.reports.html import bins, histogram_svg
from lab.reports.picture import Attachment, Picture, picture_of
from lab.reports.topology import lay_out, topology_svg
from lab.scenario.loader import load, meant
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
            replace(one, attachments=(office, *one.attachments), gateways=("10.160.11.1",))
            if one.kind == "node"
            else one
            for one in picture.machines
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


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_no_box_overlaps_another_and_all_are_inside_the_view(picture: Picture) -> None:
    layout = lay_out(picture)
    for one, other in combinations(layout.cards, 2):
        assert not one.box.overlaps(other.box)
    for card in layout.cards:
        assert card.box.within(layout.view)
        for pod, neighbour in combinations([box for _, box in card.pods], 2):
            assert not pod.overlaps(neighbour)
        assert all(box.within(card.box) for _, box in card.pods)
    for line in layout.lines:
        for x, y in (line.start, line.end):
            assert 0 <= x <= layout.view.width
            assert 0 <= y <= layout.view.height
    for caption in layout.captions:
        assert 12 <= caption.y <= layout.view.height


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_every_machine_and_pod_is_drawn_once(picture: Picture) -> None:
    layout = lay_out(picture)
    assert sorted(card.machine.name for card in layout.cards) == sorted(
        machine.name for machine in picture.machines
    )
    drawn = [pod.name for card in layout.cards for pod, _ in card.pods]
    assert sorted(drawn) == sorted(pod.name for each in picture.machines for pod in each.pods)


@pytest.mark.parametrize("name", ["hypervisors", "many hypervisors"])
def test_a_hypervisor_frames_what_stands_on_it_and_nothing_else(name: str) -> None:
    layout = lay_out(PICTURES[name])
    for frame in layout.frames:
        assert frame.box.within(layout.view)
        there = [card for card in layout.cards if card.box.overlaps(frame.box)]
        assert there
        assert {card.machine.host for card in there} == {frame.hypervisor.name}
        assert all(card.box.within(frame.box) for card in there)
    for one, other in combinations(layout.frames, 2):
        assert not one.box.overlaps(other.box)


def test_a_drawing_with_hypervisors_says_what_carries_the_nodes_segment() -> None:
    svg = topology_svg(PICTURES["hypervisors"], {}, ())
    words = ["".join(text.itertext()) for text in ET.fromstring(svg).iter("text")]
    assert "hypervisor-02  203.0.113.2" in words
    assert (
        "cluster 10.0.0.0/24, MTU 1450; carried by VXLAN 1 on UDP 4789 on "
        "hypervisors 203.0.113.0/24, MTU 1500"
    ) in words
    assert words.count("HAProxy, DNS") == 1


def test_a_rail_runs_through_no_card() -> None:
    layout = lay_out(PICTURES["sixty nodes"])
    for line in (line for line in layout.lines if line.rail):
        y = line.start[1]
        assert not [card for card in layout.cards if card.box.y < y < card.box.bottom]


def test_the_drawing_names_addresses_systems_tunnel_and_emulation() -> None:
    svg = topology_svg(PICTURES["five nodes"], shares(made_run("dead-node")), ("win1", "win2"))
    words = ["".join(text.itertext()) for text in ET.fromstring(svg).iter("text")]
    assert words.count("Windows, emulated") == 2
    assert "10.9.176.14" in words
    assert "10.244.4.2" in words
    assert "VXLAN 4096 on UDP 4789, pods' MTU 1450" in words
    assert "992 of 992 red" in words


def test_routes_are_named_where_there_is_no_tunnel() -> None:
    intent = intent_of()
    route = Route("10.244.2.0/24", "eth0", "10.9.176.12")
    bare = [replace(machine, tunnel=None) for machine in intent.machines]
    on_nodes = [replace(each, routes=(route,)) if each.kind == "node" else each for each in bare]
    on_router = [replace(each, routes=(route,)) if each.kind == "router" else each for each in bare]
    for machines, words in (
        (on_nodes, "nodes route to each other's pods, pods' MTU 1450"),
        (on_router, "router routes to every node's pods, pods' MTU 1450"),
    ):
        layout = lay_out(picture_of(replace(intent, machines=tuple(machines))))
        assert words in {caption.text for caption in layout.captions}


def test_hostile_names_are_escaped_in_the_drawing() -> None:
    intent = intent_of()
    name = '"><script>x</script>'
    hostile = replace(intent, machines=(replace(intent.machines[0], name=name),))
    svg = topology_svg(picture_of(hostile), {}, ())
    assert "<script" not in svg
    ET.fromstring(svg)


@pytest.mark.parametrize(
    ("red", "cells", "level"), [(0, 9, 0), (1, 10, 1), (2, 10, 2), (6, 10, 3), (10, 10, 4)]
)
def test_a_share_has_one_of_five_levels(red: int, cells: int, level: int) -> None:
    assert Share(red, cells).level == level


def test_known_limits_do_not_count_in_a_share() -> None:
    run = made_run("dead-node")
    assert shares(run)["win1"] == Share(992, 992)


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
def test_bins_cover_whole_decades(values: tuple[float, ...], first: int, length: int) -> None:
    start, counts = bins(values)
    assert (start, len(counts), sum(counts)) == (first, length, len(values))


def test_the_histogram_is_well_formed_and_absent_without_answers() -> None:
    ET.fromstring(histogram_svg(Latencies((0.2, 0.4, 7.0), ())))
    assert histogram_svg(Latencies((), ())) == ""


def test_a_second_address_stands_above_the_bar_and_a_held_gateway_is_named() -> None:
    drawn = ET.fromstring(topology_svg(two_networks(), {}, ()))
    for node in drawn.iter("g"):
        if "node" not in (node.get("class") or "").split():
            continue
        addresses = [
            float(text.get("y") or 0)
            for text in node.findall("text")
            if text.get("class") == "address"
        ]
        (bar,) = [one for one in node.findall("rect") if one.get("class") == "bar"]
        assert len(addresses) == 2
        assert max(addresses) < float(bar.get("y") or 0)
        assert "holds gateway 10.160.11.1" in (node.findtext("title") or "")
