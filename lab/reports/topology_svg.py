"""The drawn topology as SVG inside the HTML report; its colours come from the page's style."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from html import escape

from lab._log import quantity
from lab.reports.figures import Share
from lab.reports.picture import DrawnMachine, DrawnPod, Picture
from lab.reports.shapes import Box, Caption, Card, Frame, Layout, Line
from lab.reports.topology_layout import ADDRESSES, ROOTED, addresses_height, lay_out
from lab.scenario.scenario import Os

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
    layout: Layout, shares: Mapping[str, Share], emulated: Collection[str]
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


def _frame(frame: Frame) -> Iterator[str]:
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


def _card(card: Card, shares: Mapping[str, Share], emulated: bool) -> Iterator[str]:
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


def _kind(card: Card, emulated: bool) -> str:
    """``Windows, emulated``; the icon alone names the system where there is no room for it."""
    kind = _KINDS.get(card.machine.kind, card.machine.os.capitalize())
    held = card.machine.gateways
    if held and card.box.width >= _ROOMY:
        return f"{kind}, holds {quantity(len(held), 'gateway')}"
    if not emulated:
        return kind
    return f"{kind}, emulated" if card.box.width >= _ROOMY else "emulated"


def _health(card: Card, share: Share) -> Iterator[str]:
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
