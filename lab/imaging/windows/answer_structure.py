"""Whether an answer file is made of what the table allows, and of all that it asks for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal
from xml.etree import ElementTree as ET

from lab.imaging.windows.answer_table import OPTIONAL, TABLE, Element

Place = tuple[str, str]
"""Pass and component."""
UNATTEND = "{urn:schemas-microsoft-com:unattend}"
WCM = "{http://schemas.microsoft.com/WMIConfig/2002/State}"
_SAME: Mapping[str, str] = {
    "processorArchitecture": "amd64",
    "publicKeyToken": "31bf3856ad364e35",
    "language": "neutral",
    "versionScope": "nonSxS",
}
"""What stands beside every component's name."""
_PASSES: Mapping[str, frozenset[str]] = {
    "install": frozenset(TABLE),
    "clone": frozenset({"specialize", "oobeSystem"}),
}
_OF_AN_ENTRY = frozenset({f"{WCM}action", f"{WCM}keyValue"})


def places(root: ET.Element) -> dict[Place, ET.Element]:
    """Every component by where it stands."""
    return {
        (settings.get("pass", ""), component.get("name", "")): component
        for settings in root
        for component in settings
    }


def text(element: ET.Element | None, path: str) -> str:
    """What stands at a path below an element; empty where nothing does."""
    if element is None:
        return ""
    steps = "/".join(f"{UNATTEND}{step}" for step in path.split("/"))
    return (element.findtext(steps) or "").strip()


def local(element: ET.Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def every(element: ET.Element, name: str) -> list[ET.Element]:
    """All elements of a name at or below an element."""
    return [one for one in element.iter() if local(one) == name]


def structure(root: ET.Element, role: Literal["install", "clone"]) -> Iterator[str]:
    """Findings on passes, components, elements, their number, and every value alone."""
    seen: list[str] = []
    for settings in root:
        step = settings.get("pass", "")
        if settings.tag != f"{UNATTEND}settings":
            yield f'"{local(settings)}" stands where settings do'
        elif step not in _PASSES[role]:
            yield f'"{step}" is no pass of this document'
        else:
            seen.append(step)
            yield from _components(settings, step)
    yield from (f"{step}: the pass is there twice" for step, n in Counter(seen).items() if n > 1)
    for step in TABLE:
        if step in _PASSES[role] and step not in seen:
            yield f"{step}: the pass is missing"


def _components(settings: ET.Element, step: str) -> Iterator[str]:
    known = TABLE[step]  # type: ignore[index]
    seen: list[str] = []
    for component in settings:
        name = component.get("name", "")
        if component.tag != f"{UNATTEND}component" or name not in known:
            yield f'{step}: "{name or local(component)}" is no component of this pass{_hint(name)}'
            continue
        seen.append(name)
        where = f"{step}: {name}"
        yield from _attributes(component, where)
        yield from _children(component, known[name], where, "")
    yield from (f"{step}: {one}: it is there twice" for one, n in Counter(seen).items() if n > 1)
    for name in known:
        if name not in seen and name not in OPTIONAL:
            yield f"{step}: {name}: the component is missing"


def _hint(name: str) -> str:
    others = [step for step, components in TABLE.items() if name in components]
    return f", but of {' and '.join(others)}" if others else ""


def _attributes(component: ET.Element, where: str) -> Iterator[str]:
    for name, wanted in _SAME.items():
        written = component.get(name)
        if written != wanted:
            said = "is missing" if written is None else f'is "{written}"'
            yield f'{where}: {name} {said}, and must be "{wanted}"'
    for name in sorted(set(component.attrib) - _SAME.keys() - {"name"}):
        yield f"{where}: {name} is no attribute of a component"


def _children(
    parent: ET.Element, allowed: tuple[Element, ...], where: str, path: str
) -> Iterator[str]:
    by_name = {f"{UNATTEND}{element.name}": element for element in allowed}
    counted = Counter(child.tag for child in parent)
    for tag, element in by_name.items():
        at = f"{where}: {path}{element.name}"
        if element.needed and not counted[tag]:
            yield f"{at}: it is missing"
        if not element.many and counted[tag] > 1:
            yield f"{at}: it is there {counted[tag]} times"
    if (parent.text or "").strip() or any((child.tail or "").strip() for child in parent):
        yield f"{where}: {path.rstrip('/') or 'the component'}: there is text between its elements"
    for child in parent:
        if child.tag in by_name:
            yield from _element(child, by_name[child.tag], where, path)
        else:
            yield f"{where}: {path}{local(child)}: there is no such element"


def _element(found: ET.Element, element: Element, where: str, path: str) -> Iterator[str]:
    at = f"{where}: {path}{element.name}"
    if element.entry and found.get(f"{WCM}action") != "add":
        yield f'{at}: an entry of a list needs wcm:action="add"'
    for name in sorted(set(found.attrib) - (_OF_AN_ENTRY if element.entry else frozenset())):
        yield f"{at}: {name.rpartition('}')[2]} is no attribute of it"
    if not isinstance(element.holds, str):
        yield from _children(found, element.holds, where, f"{path}{element.name}/")
        return
    if len(found):
        yield f"{at}: it holds elements, and takes text alone"
    written = found.text or ""
    if not re.fullmatch(element.holds, written):
        secret = f"{path}{element.name}".endswith(("Password/Value", "Key"))
        yield f"{at}: it cannot be {'what it is' if secret else repr(written)}"
