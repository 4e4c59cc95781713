"""What must hold of an answer file, whatever made it: our own check before it goes to a medium.

Microsoft's tool that validates answer files runs on Windows alone. This one knows the elements of
:mod:`lab.imaging.windows.answer_table` and the rules below, of which each has stopped somebody's
installation. A finding is a defect of ours, and never repeats a secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

from lab._errors import BrokenError
from lab.imaging.windows.answer_disk import disk_findings
from lab.imaging.windows.answer_structure import (
    UNATTEND,
    Place,
    every,
    local,
    places,
    structure,
    text,
)
from lab.imaging.windows.media import Channel
from lab.imaging.windows.passwords import Suffix
from lab.imaging.windows.settings import Firmware, Settings, Storage

Role = Literal["install", "clone"]
MAX_NAME = 15
"""Characters of a NetBIOS name."""
MAX_PATH = 259
"""Characters of a RunSynchronousCommand's Path, by Microsoft's reference."""
MAX_LINE = 1024
"""Characters of a SynchronousCommand's CommandLine: inferred, since no reference is at hand."""
_REBOOTS = re.compile(
    r"\b(shutdown|reboot|restart-computer|stop-computer|wpeutil|sysprep)\b", re.IGNORECASE
)
_SPACED = re.compile(r"\s>\s*COM\d", re.IGNORECASE)
_STORAGE = re.compile(r"\\(viostor|vioscsi)\\", re.IGNORECASE)
_SETUP = ("windowsPE", "Microsoft-Windows-Setup")
_DRIVERS = ("windowsPE", "Microsoft-Windows-PnpCustomizationsWinPE")
_SPECIALIZE = ("specialize", "Microsoft-Windows-Deployment")
_NAMES = ("specialize", "Microsoft-Windows-Shell-Setup")
_OOBE = ("oobeSystem", "Microsoft-Windows-Shell-Setup")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a document is for."""

    role: Role
    firmware: Firmware | None = None
    """None of a clone, as are the others."""
    storage: Storage | None = None
    channel: Channel | None = None


CLONE = Facts("clone")


def facts_of(settings: Settings, channel: Channel) -> Facts:
    """What the answer file of an installation is for."""
    return Facts("install", settings.firmware, settings.storage, channel)


def findings(document: bytes, facts: Facts) -> tuple[str, ...]:
    """Everything wrong with a document; nothing where it may be used.

    Each is ``"pass: component: path: what is wrong"``.
    """
    if b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        return ("the document has a DOCTYPE or an entity, which no answer file needs",)
    try:
        root = ET.fromstring(document)  # noqa: S314  our own, and without DOCTYPE
    except ET.ParseError as error:
        return (f"the document is no XML: {error}",)
    if root.tag != f"{UNATTEND}unattend":
        return (f'the document is "{root.tag}", and no answer file',)
    found = [*structure(root, facts.role)]
    there = places(root)
    for rule in (_orders, _lengths, _signals, _passwords):
        found += rule(there)
    found += _name(there)
    if facts.role == "install":
        found += disk_findings(there.get(_SETUP), facts.firmware)
        found += _keys(there, facts)
        found += _drivers(there, facts)
    return tuple(dict.fromkeys(found))


def verified(document: bytes, facts: Facts) -> bytes:
    """The document itself, when nothing is wrong with it.

    Raises
    ------
    BrokenError
        With all findings.

    """
    wrong = findings(document, facts)
    if wrong:
        listed = "".join(f"\n    {finding}" for finding in wrong)
        whose = {"clone": "a clone", "install": "an installation"}[facts.role]
        raise BrokenError(
            f"checking the answer file of {whose}",
            f"Windows would not take it:{listed}",
            "this is a defect of hybridlab, or of a changed template in images/windows",
        )
    return document


def _orders(there: dict[Place, ET.Element]) -> Iterator[str]:
    """Order is unique and counts from 1, in every list."""
    for (step, name), component in there.items():
        for parent in component.iter():
            written = [text(child, "Order") for child in parent if text(child, "Order")]
            if written and sorted(written, key=str) != sorted(
                str(number + 1) for number in range(len(written))
            ):
                where = f"{step}: {name}: {local(parent)}"
                yield f"{where}: Order is {', '.join(written)}, not 1 to {len(written)}"


def _lengths(there: dict[Place, ET.Element]) -> Iterator[str]:
    """Commands are no longer than Windows reads, and none restarts Setup's machine."""
    for place in (_SETUP, _SPECIALIZE):
        for number, line in _commands(there, place, "RunSynchronousCommand", "Path"):
            where = f"{place[0]}: {place[1]}: RunSynchronousCommand {number}"
            if len(line) > MAX_PATH:
                yield f"{where}: Path has {len(line)} characters, and at most {MAX_PATH} are read"
            if found := _REBOOTS.search(line):
                yield f'{where}: Path holds "{found[0]}", which would break the pass'
    for number, line in _commands(there, _OOBE, "SynchronousCommand", "CommandLine"):
        if len(line) > MAX_LINE:
            where = f"{_OOBE[0]}: {_OOBE[1]}: SynchronousCommand {number}: CommandLine"
            yield f"{where} has {len(line)} characters, and at most {MAX_LINE} are read"


def _signals(there: dict[Place, ET.Element]) -> Iterator[str]:
    """Every list of commands begins by telling the host which phase it is."""
    lists = (
        (_SETUP, "RunSynchronousCommand", "Path", "winpe"),
        (_SPECIALIZE, "RunSynchronousCommand", "Path", "specialize"),
        (_OOBE, "SynchronousCommand", "CommandLine", "first-logon"),
    )
    for place, entry, line, phase in lists:
        if place not in there:
            continue
        where = f"{place[0]}: {place[1]}: {entry}"
        lines = dict(_commands(there, place, entry, line))
        if lines.get("1") != f"cmd /c echo hybridlab: phase {phase}> COM1":
            yield f'{where} 1: it does not tell the host "phase {phase}"'
        for number, written in lines.items():
            if _SPACED.search(written):
                yield f"{where} {number}: echo writes the space before > to COM1 too"


def _passwords(there: dict[Place, ET.Element]) -> Iterator[str]:
    """Passwords are encoded with the name of their element, and are the same one."""
    component = there.get(_OOBE)
    if component is None:
        return
    where = f"{_OOBE[0]}: {_OOBE[1]}"
    kinds: tuple[tuple[str, Suffix], ...] = (
        ("UserAccounts/AdministratorPassword", "AdministratorPassword"),
        ("AutoLogon/Password", "Password"),
    )
    decoded: list[str] = []
    for path, suffix in kinds:
        password = _decoded(text(component, f"{path}/Value"), suffix)
        if password is None:
            yield f'{where}: {path}/Value: it is not UTF-16LE ending in "{suffix}", in base64'
        elif not password:
            yield f"{where}: {path}/Value: the password is empty"
        else:
            decoded.append(password)
    if len(set(decoded)) > 1:
        yield f"{where}: AutoLogon/Password/Value: it is another password than the administrator's"


def _name(there: dict[Place, ET.Element]) -> Iterator[str]:
    """The computer's name is one that NetBIOS has."""
    name = text(there.get(_NAMES), "ComputerName")
    if len(name) > MAX_NAME:
        yield (
            f'{_NAMES[0]}: {_NAMES[1]}: ComputerName: "{name}" has {len(name)} characters, and '
            f"NetBIOS takes {MAX_NAME}"
        )


def _keys(there: dict[Place, ET.Element], facts: Facts) -> Iterator[str]:
    """No key at all on evaluation media; on others the same at both places, or none."""
    first = text(there.get(_SETUP), "UserData/ProductKey/Key")
    second = text(there.get(_NAMES), "ProductKey")
    for place, path, key in (
        (_SETUP, "UserData/ProductKey/Key", first),
        (_NAMES, "ProductKey", second),
    ):
        if facts.channel == "evaluation" and key:
            yield f"{place[0]}: {place[1]}: {path}: evaluation media take no product key"
        if facts.channel == "volume" and not key:
            yield f"{place[0]}: {place[1]}: {path}: volume media need a product key"
    if facts.channel != "evaluation" and first != second:
        yield f"{_NAMES[0]}: {_NAMES[1]}: ProductKey: it is not the one that Setup is given"


def _drivers(there: dict[Place, ET.Element], facts: Facts) -> Iterator[str]:
    """Drivers of the disk where it needs one, and no name twice."""
    component = there.get(_DRIVERS)
    where = f"{_DRIVERS[0]}: {_DRIVERS[1]}"
    entries = [] if component is None else every(component, "PathAndCredentials")
    paths = [text(entry, "Path") for entry in entries]
    if facts.storage == "virtio" and not any(_STORAGE.search(path) for path in paths):
        yield f"{where}: DriverPaths: no path has the driver of a virtio disk"
    if facts.storage == "sata" and paths:
        yield f"{where}: DriverPaths: a SATA disk needs none"
    names = [
        next((v for k, v in entry.attrib.items() if k.endswith("}keyValue")), "")
        for entry in entries
    ]
    if "" in names or len(set(names)) != len(names):
        yield f"{where}: PathAndCredentials: wcm:keyValue is missing or there twice"


def _commands(
    there: dict[Place, ET.Element], place: Place, entry: str, line: str
) -> Iterator[tuple[str, str]]:
    """Order and line of the commands in a component."""
    component = there.get(place)
    for one in every(component, entry) if component is not None else ():
        yield text(one, "Order"), text(one, line)


def _decoded(value: str, suffix: Suffix) -> str | None:
    try:
        whole = base64.b64decode(value, validate=True).decode("utf-16-le")
    except (binascii.Error, UnicodeDecodeError):
        return None
    password = whole.removesuffix(suffix)
    return password if len(password) < len(whole) else None
