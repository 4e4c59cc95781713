"""The topology of a lab as SVG: machines, pods and tunnels, with the share of red cells."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Literal

from lab._log import quantity
from lab.reports.figures import Share
from lab.reports.picture import DrawnMachine, DrawnPod, Picture
from lab.scenario.terms import Os
from lab.topology.intent import Segment

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
    cards: list[MachineBox] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)
    frames: list[HypervisorFrame] = field(default_factory=list)

    def line(
        self, kind: Literal["segment", "tunnel"], *ends: tuple[float, float], rail: bool = False
    ) -> None:
        self.lines.append(Line(kind, ends[0], ends[1], rail))


def lay_out(picture: Picture) -> Drawing:
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
    return Drawing(
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
"""A hypervisor, if any, and the rows of what runs on it."""


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
        drawing.cards.append(MachineBox(machine, box, (), dots=False))
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
            drawing.frames.append(HypervisorFrame(hypervisor, box))
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
        drawing.cards.append(MachineBox(node, box, _pod_boxes(node, box, head, dots), dots))
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


_LETTER = 7.6
"""Width of a bold letter of a machine's name at 13 px, generously."""
_ROOMY = 130.0
"""Pixels of a card that has room for ``Windows, emulated``."""
_UNKNOWN = Share(0, 0)
_KINDS = {"router": "router", "client": "client, outside", "services": "HAProxy, DNS"}


def topology_svg(picture: Picture, shares: Mapping[str, Share], emulated: Collection[str]) -> str:
    """Draw the picture, machines and pods coloured by their share of red cells."""
    layout = lay_out(picture)
    return "\n".join(_drawing(layout, shares, emulated))


def _drawing(
    layout: Drawing, shares: Mapping[str, Share], emulated: Collection[str]
) -> Iterator[str]:
    view = layout.view
    nodes = sum(1 for card in layout.cards if card.machine.kind == "node")
    yield (
        f'<svg class="topology" viewBox="0 0 {view.width:g} {view.height:g}" role="img"'
        f' aria-label="Topology of {nodes} nodes">'
    )
    for frame in layout.frames:
        yield from _frame(frame)
    for line in layout.lines:
        yield _line(line)
    for caption in layout.captions:
        yield _caption(caption)
    for card in layout.cards:
        yield from _card(card, shares, card.machine.name in emulated)
    yield "</svg>"


def _frame(frame: HypervisorFrame) -> Iterator[str]:
    machine, box = frame.hypervisor, frame.box
    address = machine.attachments[0].address
    title = f"hypervisor {machine.name}, {address}"
    if machine.tunnel:
        title += f"; {machine.tunnel} to the others"
    yield f'<g class="hypervisor"><title>{escape(title)}</title>{_rectangle(box, 12)}'
    yield _text("name", box.x + 12, box.y + 15, f"{machine.name}  {address}")
    yield "</g>"


def _line(line: Line) -> str:
    (x1, y1), (x2, y2) = line.start, line.end
    name = f"{line.kind} rail" if line.rail else line.kind
    return f'<line class="{name}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _caption(caption: Caption) -> str:
    return (
        f'<text class="caption {caption.kind}" x="{caption.x:g}" y="{caption.y:g}">'
        f"{escape(caption.text)}</text>"
    )


def _card(card: MachineBox, shares: Mapping[str, Share], emulated: bool) -> Iterator[str]:
    machine, box = card.machine, card.box
    share = shares.get(machine.name, _UNKNOWN)
    names = f"machine {machine.kind} level{share.level}{' emulated' if emulated else ''}"
    yield f'<g class="{names}"><title>{escape(_title(machine, share, emulated))}</title>'
    yield _rectangle(box, 10)
    yield _icon(machine.os, box.x + 12, box.y + 11)
    room = int((box.width - 46) / _LETTER)
    yield _text("name", box.x + 36, box.y + 24, _shortened(machine.name, room))
    yield _text("os", box.x + 12, box.y + 42, _kind(card, emulated))
    for index, attachment in enumerate(machine.attachments[:ADDRESSES]):
        yield _text("address", box.x + 12, box.y + 58 + 14 * index, attachment.address)
    if machine.kind in ROOTED:
        yield from _health(card, share)
    for pod, pod_box in card.pods:
        yield _pod(pod, pod_box, shares.get(pod.name, _UNKNOWN), card.dots)
    yield "</g>"


def _kind(card: MachineBox, emulated: bool) -> str:
    """``Windows, emulated``; the icon alone names the system where there is no room for it."""
    kind = _KINDS.get(card.machine.kind, card.machine.os.capitalize())
    held = card.machine.gateways
    if held and card.box.width >= _ROOMY:
        return f"{kind}, holds {quantity(len(held), 'gateway')}"
    if not emulated:
        return kind
    return f"{kind}, emulated" if card.box.width >= _ROOMY else "emulated"


def _health(card: MachineBox, share: Share) -> Iterator[str]:
    """A bar of the share of red cells, and the same in words."""
    box, width = card.box, card.box.width - 24
    part = width * share.red / share.cells if share.cells else 0.0
    lower = addresses_height(card.machine)
    y = box.y + 66 + lower
    yield f'<rect class="bar" x="{box.x + 12:g}" y="{y:g}" width="{width:g}" height="5" rx="2.5"/>'
    if part:
        part = max(part, 3.0)
        yield (
            f'<rect class="bar red" x="{box.x + 12:g}" y="{y:g}" width="{part:.1f}" height="5"'
            ' rx="2.5"/>'
        )
    if not card.dots:
        yield _text("health", box.x + 12, box.y + 86 + lower, _health_words(share))


def _health_words(share: Share) -> str:
    if not share.cells:
        return "no cells"
    if not share.red:
        return "all as expected"
    return f"{share.red:,} of {share.cells:,} red"


def _title(machine: DrawnMachine, share: Share, emulated: bool) -> str:
    what = f"{machine.kind} {machine.name} ({machine.os}{', emulated' if emulated else ''})"
    lines = [what, *(f"{each.segment}: {each.address}" for each in machine.attachments)]
    lines += [f"holds gateway {address}" for address in machine.gateways]
    if machine.tunnel:
        lines.append(machine.tunnel)
    if machine.routes:
        lines.append(f"{machine.routes} routes to other networks")
    return "\n".join([*lines, _health_words(share)])


def _pod(pod: DrawnPod, box: Box, share: Share, dot: bool) -> str:
    title = f"<title>{escape(f'pod {pod.name}, {pod.address}: {_health_words(share)}')}</title>"
    group = f'<g class="pod {pod.role} level{share.level}">{title}'
    if dot:
        return f"{group}{_rectangle(box, box.width / 2)}</g>"
    room = int((box.width - 14) / 6.4)
    return (
        f"{group}{_rectangle(box, 6)}"
        f"{_text('name', box.x + 8, box.y + 14, _shortened(pod.name, room))}"
        f"{_text('address', box.x + 8, box.y + 27, pod.address)}</g>"
    )


def _rectangle(box: Box, radius: float) -> str:
    return (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
        f' rx="{radius:g}"/>'
    )


def _text(name: str, x: float, y: float, words: str) -> str:
    return f'<text class="{name}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def _shortened(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _icon(system: Os, x: float, y: float) -> str:
    """Four panes, or a small penguin, 16 by 16 px."""
    inside = _PANES if system == "windows" else _PENGUIN
    return f'<g class="icon {system}" transform="translate({x:g} {y:g})">{inside}</g>'


_PANES = "".join(
    f'<rect x="{x}" y="{y}" width="7.3" height="7.3" rx="0.6"/>' for x in (0, 8.7) for y in (0, 8.7)
)
_PENGUIN = (
    '<path class="coat" d="M8 0c-2.5 0-3.6 1.9-3.6 4 0 2.3-2.6 4.6-2.6 8.1 0 2.4 2.4 3.4 6.2 3.4'
    's6.2-1 6.2-3.4c0-3.5-2.6-5.8-2.6-8.1 0-2.1-1.1-4-3.6-4z"/>'
    '<ellipse class="belly" cx="8" cy="11" rx="3.6" ry="4"/>'
    '<circle class="belly" cx="6.7" cy="3.6" r="1"/><circle class="belly" cx="9.3" cy="3.6" r="1"/>'
    '<path class="beak" d="M6.2 5.4h3.6L8 7.3z"/>'
    '<ellipse class="beak" cx="4.4" cy="15" rx="2.6" ry="1"/>'
    '<ellipse class="beak" cx="11.6" cy="15" rx="2.6" ry="1"/>'
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle from its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Centre, horizontally."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.y + self.height

    def overlaps(self, other: Box) -> bool:
        """Check whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Check whether all of this box lies in the other."""
        return (
            other.x <= self.x
            and other.y <= self.y
            and self.x + self.width <= other.x + other.width
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True, slots=True)
class MachineBox:
    """A machine's box and those of its pods, which lie inside it."""

    machine: DrawnMachine
    box: Box
    pods: tuple[tuple[DrawnPod, Box], ...]
    dots: bool
    """True if pods are drawn as dots."""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line of a segment or of the tunnel."""

    kind: Literal["segment", "tunnel"]
    start: tuple[float, float]
    end: tuple[float, float]
    rail: bool
    """True if it is the thing itself, or only the way to it."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Words on a rail; ``x``, ``y`` is the left end of their base line."""

    kind: Literal["segment", "tunnel"]
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class HypervisorFrame:
    """A hypervisor, around everything that runs on it."""

    hypervisor: DrawnMachine
    box: Box


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole drawing, inside ``view``."""

    view: Box
    cards: tuple[MachineBox, ...]
    lines: tuple[Line, ...]
    captions: tuple[Caption, ...]
    frames: tuple[HypervisorFrame, ...] = ()
