"""The topology of a lab as a drawing: Mermaid, DOT, D2 and SVG. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from lab._log import clean, quantity
from lab.reports.topology import DrawnMachine, Picture, arrange

FORMATS = ("mermaid", "dot", "d2", "svg")
_PODS = 8
"""Pods listed on a node; if there are more, only their number is shown."""
_KINDS = {"node": "", "services": "HAProxy, DNS"}


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A segment or a machine, with its lines of text."""

    id: str
    lines: tuple[str, ...]
    is_segment: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes, and edges as (machine, segment, address)."""

    title: str
    boxes: tuple[GraphBox, ...]
    edges: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    """Ids of boxes from top to bottom."""


def graph_of(title: str, picture: Picture) -> Graph:
    """The graph of a lab's picture."""
    machines = (*picture.machines, *picture.hypervisors)
    ids = {name: f"n{number}" for number, name in enumerate(_names(picture, machines))}
    boxes = [
        GraphBox(
            ids[f"segment {segment.name}"], (segment.name, segment.cidr, f"MTU {segment.mtu}"), True
        )
        for segment in picture.segments
    ]
    boxes += [GraphBox(ids[machine.name], tuple(_lines(machine))) for machine in machines]
    edges = tuple(
        (ids[machine.name], ids[f"segment {at.segment}"], at.address)
        for machine in machines
        for at in machine.attachments
    )
    return Graph(title, tuple(boxes), edges, tuple(_rows(picture, ids)))


def _names(picture: Picture, machines: Sequence[DrawnMachine]) -> Iterator[str]:
    yield from (f"segment {segment.name}" for segment in picture.segments)
    yield from (machine.name for machine in machines)


def _lines(machine: DrawnMachine) -> Iterator[str]:
    kind = _KINDS.get(machine.kind, machine.kind)
    yield machine.name
    yield ", ".join(filter(None, (machine.os.capitalize(), kind)))
    if machine.tunnel:
        yield machine.tunnel
    if machine.host:
        yield f"on {machine.host}"
    pods = [f"{pod.name} {pod.address}" for pod in machine.pods]
    yield from pods if len(pods) <= _PODS else [quantity(len(pods), "pod")]


def _rows(picture: Picture, ids: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The rows: outside, its segments, routers, the nodes' segment, nodes, hypervisors."""
    rows = arrange(picture)
    inner = {at.segment for _, nodes in rows.hosts for node in nodes for at in node.attachments}
    beneath = {at.segment for host in picture.hypervisors for at in host.attachments} - inner
    segments = [segment.name for segment in picture.segments]
    drawn: tuple[tuple[str, ...], ...] = (
        tuple(machine.name for machine in rows.outside),
        tuple(f"segment {name}" for name in segments if name not in inner | beneath),
        tuple(router.name for router in rows.routers),
        tuple(f"segment {name}" for name in segments if name in inner),
        tuple(node.name for _, nodes in rows.hosts for node in nodes),
        tuple(hypervisor.name for hypervisor in picture.hypervisors),
        tuple(f"segment {name}" for name in segments if name in beneath),
    )
    yield from (tuple(ids[name] for name in row) for row in drawn if row)


def draw(graph: Graph, format: str) -> str:  # noqa: A002  the option's word
    """The drawing in one of :data:`FORMATS`, ending with a newline."""
    drawer = {"mermaid": _mermaid, "dot": _dot, "d2": _d2, "svg": _svg}[format]
    return "\n".join(drawer(graph)) + "\n"


def _mermaid(graph: Graph) -> Iterator[str]:
    yield "---"
    yield f"title: {_quote(graph.title)}"
    yield "---"
    yield "flowchart TB"
    for box in graph.boxes:
        words = "<br/>".join(escape(clean(line)) for line in box.lines)
        yield f'  {box.id}(["{words}"])' if box.is_segment else f'  {box.id}["{words}"]'
    for machine, segment, address in graph.edges:
        yield f'  {machine} ---|"{address}"| {segment}' if address else f"  {machine} --- {segment}"


def _dot(graph: Graph) -> Iterator[str]:
    yield f"graph {_quote(graph.title)} {{"
    yield '  node [shape=box, fontname="sans-serif"]'
    for box in graph.boxes:
        shape = ", shape=oval" if box.is_segment else ""
        yield f"  {box.id} [label={_quote(chr(10).join(box.lines))}{shape}]"
    for machine, segment, address in graph.edges:
        yield f"  {machine} -- {segment} [label={_quote(address)}]"
    yield "}"


def _d2(graph: Graph) -> Iterator[str]:
    yield f"title: {_quote(graph.title)} {{near: top-center}}"
    for box in graph.boxes:
        shape = "oval" if box.is_segment else "rectangle"
        yield f"{box.id}: {_quote(chr(10).join(box.lines))} {{shape: {shape}}}"
    for machine, segment, address in graph.edges:
        yield f"{machine} -- {segment}: {_quote(address)}"


def _quote(text: str) -> str:
    """The text in double quotes, valid in DOT, D2 and YAML."""
    safe = clean(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + safe.replace("\n", "\\n") + '"'


_WIDTH, _LINE, _PAD, _GAP, _BETWEEN = 190, 16, 10, 20, 44
"""Pixels: width of a box, height of a line, padding, and gaps between boxes and between rows."""
_ADDRESS = 12
"""Pixels from an address to the next one above it."""
_STYLE = (
    "text{font:12px sans-serif;fill:#1b1f24}.head{font-weight:bold}"
    "rect{fill:#fff;stroke:#57606a}.segment rect{fill:#eef1f4}"
    "line{stroke:#8c959f}"
    ".address{fill:#57606a;font-size:10px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


def _svg(graph: Graph) -> Iterator[str]:
    boxes = {box.id: box for box in graph.boxes}
    width = max(len(row) for row in graph.rows) * (_WIDTH + _GAP) + _GAP
    places: dict[str, tuple[float, float, float]] = {}
    top = 2 * _GAP + _LINE
    for row in graph.rows:
        height = max(len(boxes[name].lines) for name in row) * _LINE + 2 * _PAD
        left = (width - len(row) * (_WIDTH + _GAP) + _GAP) / 2
        for at, name in enumerate(row):
            own = len(boxes[name].lines) * _LINE + 2 * _PAD
            places[name] = (left + at * (_WIDTH + _GAP), top, own)
        top += height + _BETWEEN
    size = f'width="{width}" height="{top:g}" viewBox="0 0 {width} {top:g}"'
    title = escape(clean(graph.title))
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield f"<title>{title}</title><style>{_STYLE}</style>"
    yield f'<rect width="{width}" height="{top:g}" style="stroke:none"/>'
    yield f'<text class="head" x="{_GAP}" y="{_GAP + _LINE}">{title}</text>'
    yield from _edges(places, graph.edges)
    yield from chain.from_iterable(_box(boxes[name], *place) for name, place in places.items())
    yield "</svg>"


def _edges(
    places: Mapping[str, tuple[float, float, float]], edges: Iterable[tuple[str, str, str]]
) -> Iterator[str]:
    """The lines, then their addresses: one above the other where several lines meet at a box."""
    above: Counter[tuple[float, float]] = Counter()
    labels = []
    for machine, segment, address in edges:
        (x1, y1, h1), (x2, y2, h2) = places[machine], places[segment]
        below = y1 > y2
        begin, end = (y1, y2 + h2) if below else (y1 + h1, y2)
        middle = x1 + _WIDTH / 2
        ends = f'x1="{middle:g}" y1="{begin:g}" x2="{x2 + _WIDTH / 2:g}" y2="{end:g}"'
        yield f"<line {ends}/>"
        away = _ADDRESS * above[middle, begin]
        above[middle, begin] += 1
        near = begin - 4 - away if below else begin + 12 + away
        labels.append(f'<text class="address" x="{middle + 4:g}" y="{near:g}">{address}</text>')
    yield from labels


def _box(box: GraphBox, left: float, top: float, height: float) -> Iterator[str]:
    yield f"<g{' class=' + chr(34) + 'segment' + chr(34) if box.is_segment else ''}>"
    rim = f' rx="{height / 2:g}"' if box.is_segment else ""
    yield f'<rect x="{left:g}" y="{top:g}" width="{_WIDTH}" height="{height:g}"{rim}/>'
    for number, line in enumerate(box.lines, 1):
        head = ' class="head"' if number == 1 else ""
        where = f'x="{left + _WIDTH / 2:g}" y="{top + _PAD + number * _LINE - 4:g}"'
        yield f'<text{head} {where} text-anchor="middle">{escape(clean(line))}</text>'
    yield "</g>"
