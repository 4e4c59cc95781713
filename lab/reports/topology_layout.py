"""Where everything of the drawn topology stands. Pure; lengths are pixels of the view box.

From the top: the machines outside, the outside segment, the routers, the segment that the nodes
stand on, and the nodes in one row or several, each row hanging from a rail of that segment. A
dashed rail under a row is the tunnel that joins the nodes. What stands on one hypervisor is framed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from lab.reports.picture import DrawnMachine, DrawnPod, Picture
from lab.reports.shapes import Box, Caption, Card, Frame, Layout, Line
from lab.topology.segment import Segment

WIDTH = 1120.0
EDGE = 36.0
GAP = 16.0
DROP = 26.0
"""From a rail to the card that hangs from it."""
CARD_WIDEST = 190.0
NODE_HEAD = 96.0
"""The part of a node's card above its pods."""
DENSE_HEAD = 80.0
"""The same where pods are dots: without the words under the bar."""
ADDRESSES = 2
"""So many of a machine's addresses are written on its card."""
ADDRESS_HEIGHT = 14.0
MACHINE_HEIGHT = 84.0
POD_HEIGHT = 34.0
POD_GAP = 6.0
DOT = 12.0
DOT_STEP = 17.0
IN_ONE_ROW = 6
IN_A_ROW = 8
LISTED_PODS = 4
"""With more pods on a node, or more than ``LISTED_NODES`` nodes, pods are drawn as dots."""
LISTED_NODES = 16
FRAME_HEAD = 22.0
"""The part of a frame above its first rail: its caption."""
FRAME_FOOT = 10.0
ROOTED = frozenset({"node", "services"})
"""Kinds of machine that stand in the rows."""


@dataclass(slots=True)
class _Drawing:
    """What has been placed so far, and how far down it reaches."""

    y: float = 12.0
    cards: list[Card] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    def line(
        self, kind: Literal["segment", "tunnel"], *ends: tuple[float, float], rail: bool = False
    ) -> None:
        self.lines.append(Line(kind, ends[0], ends[1], rail))


def lay_out(picture: Picture) -> Layout:
    """Place every machine, pod and segment of the picture."""
    nodes = [machine for machine in picture.machines if machine.kind in ROOTED]
    inner = {each.segment for node in nodes for each in node.attachments}
    others = [machine for machine in picture.machines if machine.kind not in ROOTED]
    routers = [each for each in others if inner & {at.segment for at in each.attachments}]
    outside = [each for each in others if each not in routers]
    drawing = _Drawing()
    beneath = {each.segment for one in picture.hypervisors for each in one.attachments}
    upper = [one for one in picture.segments if one.name not in inner | beneath]
    _machines(drawing, outside)
    for segment in upper:
        _rail_between(drawing, segment, outside, routers)
    _machines(drawing, routers)
    lower = [segment for segment in picture.segments if segment.name in inner]
    if nodes:
        words = _words(picture, lower)
        carriage = _carriage(nodes, routers, picture.pod_mtu)
        _nodes(drawing, _floors(nodes, picture.hypervisors), routers, (words, carriage))
    view = Box(0, 0, WIDTH, drawing.y + 12)
    return Layout(
        view,
        tuple(drawing.cards),
        tuple(drawing.lines),
        tuple(drawing.captions),
        tuple(drawing.frames),
    )


def addresses_height(machine: DrawnMachine) -> float:
    """What addresses beyond the first add to a card."""
    return ADDRESS_HEIGHT * max(0, min(len(machine.attachments), ADDRESSES) - 1)


def segment_words(segment: Segment) -> str:
    """``cluster 10.9.176.0/24, MTU 1500``."""
    return f"{segment.name} {segment.cidr}, MTU {segment.mtu}"


def _words(picture: Picture, segments: Sequence[Segment]) -> str:
    """What the nodes' segment is, and what carries it between hypervisors."""
    said = "; ".join(segment_words(segment) for segment in segments)
    if len(picture.hypervisors) > 1:
        beneath = {each.segment for one in picture.hypervisors for each in one.attachments}
        between = next(one for one in picture.segments if one.name in beneath)
        said += f"; carried by {picture.hypervisors[0].tunnel} on {segment_words(between)}"
    return said


_Floor = tuple[DrawnMachine | None, Sequence[Sequence[DrawnMachine]]]
"""A hypervisor, if any, and the rows of what stands on it."""


def _floors(nodes: Sequence[DrawnMachine], hypervisors: Sequence[DrawnMachine]) -> Sequence[_Floor]:
    if not hypervisors:
        return [(None, _rows(nodes))]
    found = [(one, [node for node in nodes if node.host == one.name]) for one in hypervisors]
    return [(one, _rows(there)) for one, there in found if there]


def _carriage(nodes: Sequence[DrawnMachine], routers: Sequence[DrawnMachine], pod_mtu: int) -> str:
    """How pods' packets get from node to node, in words."""
    tunnels = [node.tunnel for node in nodes if node.tunnel]
    if tunnels:
        return f"{tunnels[0]}, pods' MTU {pod_mtu}"
    for router in routers:
        if router.routes:
            return f"{router.name} routes to every node's pods, pods' MTU {pod_mtu}"
    if any(node.routes for node in nodes):
        return f"nodes route to each other's pods, pods' MTU {pod_mtu}"
    return ""


def _machines(drawing: _Drawing, machines: Sequence[DrawnMachine]) -> None:
    if not machines:
        return
    boxes = _row(len(machines), drawing.y, MACHINE_HEIGHT)
    for machine, box in zip(machines, boxes, strict=True):
        drawing.cards.append(Card(machine, box, (), dots=False))
    drawing.y = boxes[0].bottom


def _row(count: int, y: float, height: float, longest: int = 0) -> list[Box]:
    """``count`` boxes side by side, as wide as the longest row's, which is centred."""
    most = max(count, longest)
    width = min(CARD_WIDEST, (WIDTH - 2 * EDGE - (most - 1) * GAP) / most)
    left = (WIDTH - most * width - (most - 1) * GAP) / 2
    return [Box(left + index * (width + GAP), y, width, height) for index in range(count)]


def _rail_between(
    drawing: _Drawing,
    segment: Segment,
    above: Sequence[DrawnMachine],
    below: Sequence[DrawnMachine],
) -> None:
    """A segment as a rail under what stands above; what follows hangs from it."""
    y = drawing.y + DROP
    for card in drawing.cards:
        if card.machine in above:
            drawing.line("segment", (card.box.middle, card.box.bottom), (card.box.middle, y))
    ends = (WIDTH / 4, WIDTH * 3 / 4)
    drawing.line("segment", (ends[0], y), (ends[1], y), rail=True)
    drawing.captions.append(Caption("segment", ends[0], y - 8, segment_words(segment)))
    for box in _row(len(below), y + DROP, MACHINE_HEIGHT) if below else ():
        drawing.line("segment", (box.middle, y), (box.middle, box.y))
    drawing.y = y + DROP


def _nodes(
    drawing: _Drawing,
    floors: Sequence[_Floor],
    routers: Sequence[DrawnMachine],
    words: tuple[str, str],
) -> None:
    """The rows of nodes; ``words`` say what their segment is and what carries pods' packets."""
    framed = FRAME_HEAD if floors[0][0] else 0.0
    first = drawing.y + framed + (DROP if drawing.cards else 18)
    for card in drawing.cards:
        if card.machine in routers:
            drawing.line("segment", (card.box.middle, card.box.bottom), (card.box.middle, first))
    drawing.captions.append(Caption("segment", EDGE - 16, first - framed - 8, words[0]))
    rails: list[float] = []
    tunnels: list[float] = []
    every = [row for _, rows in floors for row in rows]
    drawn = _Style(len(max(every, key=len)), _as_dots([node for row in every for node in row]))
    for hypervisor, rows in floors:
        top = drawing.y + GAP if rails else first - framed
        for row in rows:
            head = framed if row is rows[0] and rails else 0.0
            rails.append(first if not rails else drawing.y + GAP + head)
            boxes = _row(len(row), rails[-1] + DROP, 0, drawn.longest)
            _node_row(drawing, list(zip(row, boxes, strict=True)), rails[-1], drawn.dots)
            if any(node.tunnel for node in row):
                tunnels.append(_tunnel_rail(drawing, row))
        if hypervisor:
            drawing.y += FRAME_FOOT
            box = Box(EDGE - 8, top, WIDTH - 2 * (EDGE - 8), drawing.y - top)
            drawing.frames.append(Frame(hypervisor, box))
    drawing.line("segment", (EDGE - 16, first), (EDGE - 16, rails[-1]))
    if words[1]:
        drawing.captions.append(Caption("tunnel", EDGE - 16, drawing.y + 16, words[1]))
        drawing.y += 18
    if len(tunnels) > 1:
        right = WIDTH - EDGE + 16
        drawing.line("tunnel", (right, tunnels[0]), (right, tunnels[-1]))


@dataclass(frozen=True, slots=True)
class _Style:
    """What all rows have in common: how many cards fit the longest, and how pods are drawn."""

    longest: int
    dots: bool


def _as_dots(nodes: Sequence[DrawnMachine]) -> bool:
    return len(nodes) > LISTED_NODES or any(len(node.pods) > LISTED_PODS for node in nodes)


def _rows(nodes: Sequence[DrawnMachine]) -> list[Sequence[DrawnMachine]]:
    """Rows as even as can be: 60 nodes are 8 rows of 8 or 7, never 7 rows and a stray."""
    count = len(nodes)
    rows = 1 if count <= IN_ONE_ROW else -(-count // IN_A_ROW)
    cuts = [round(index * count / rows) for index in range(rows + 1)]
    return [nodes[start:end] for start, end in pairwise(cuts) if end > start]


def _node_row(
    drawing: _Drawing, row: Sequence[tuple[DrawnMachine, Box]], rail: float, dots: bool
) -> None:
    """Cards as high as the one with most pods, hanging from a rail."""
    drawing.line("segment", (EDGE - 16, rail), (WIDTH - EDGE + 16, rail), rail=True)
    head = DENSE_HEAD if dots else NODE_HEAD
    head += max(addresses_height(machine) for machine, _ in row)
    height = head + max(_pods_height(node, place.width, dots) for node, place in row)
    for node, place in row:
        box = Box(place.x, place.y, place.width, height)
        drawing.line("segment", (box.middle, rail), (box.middle, box.y))
        drawing.cards.append(Card(node, box, _pod_boxes(node, box, head, dots), dots))
    drawing.y = drawing.cards[-1].box.bottom


def _tunnel_rail(drawing: _Drawing, row: Sequence[DrawnMachine]) -> float:
    y = drawing.y + GAP
    for card in drawing.cards[-len(row) :]:
        if card.machine.tunnel:
            drawing.line("tunnel", (card.box.middle, card.box.bottom), (card.box.middle, y))
    drawing.line("tunnel", (EDGE - 16, y), (WIDTH - EDGE + 16, y), rail=True)
    drawing.y = y + 4
    return y


def _dots_across(width: float) -> int:
    return max(1, int((width - 24 - DOT) // DOT_STEP) + 1)


def _pods_height(node: DrawnMachine, width: float, dots: bool) -> float:
    count = len(node.pods)
    if not count:
        return 0.0
    if dots:
        return -(-count // _dots_across(width)) * DOT_STEP + 8
    return count * (POD_HEIGHT + POD_GAP) + 6


def _pod_boxes(
    node: DrawnMachine, box: Box, head: float, dots: bool
) -> tuple[tuple[DrawnPod, Box], ...]:
    top = box.y + head
    if not dots:
        step = POD_HEIGHT + POD_GAP
        return tuple(
            (pod, Box(box.x + 10, top + index * step, box.width - 20, POD_HEIGHT))
            for index, pod in enumerate(node.pods)
        )
    across = _dots_across(box.width)
    return tuple(
        (
            pod,
            Box(
                box.x + 12 + index % across * DOT_STEP,
                top + index // across * DOT_STEP,
                DOT,
                DOT,
            ),
        )
        for index, pod in enumerate(node.pods)
    )
