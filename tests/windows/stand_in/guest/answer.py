"""Parse an answer file like Setup, but stricter: anything unknown is refused."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from stand_in.guest.known import COMPONENTS, VALUES

UNATTEND = "{urn:schemas-microsoft-com:unattend}"
WCM = "{http://schemas.microsoft.com/WMIConfig/2002/State}"
IDENTITY = {
    "processorArchitecture": "amd64",
    "publicKeyToken": "31bf3856ad364e35",
    "language": "neutral",
    "versionScope": "nonSxS",
}
LONGEST_PATH = 259
LONGEST_COMMAND_LINE = 1024
LONGEST_COMPUTER_NAME = 15


class AnswerError(Exception):
    """The file has something unknown, or something at which Setup would stop."""


@dataclass(frozen=True)
class Partition:
    number: int
    kind: str
    """``EFI``, ``MSR``, ``Primary``."""
    mib: int | None
    """None for the remaining space."""
    format: str | None = None
    label: str = ""
    letter: str = ""
    active: bool = False


@dataclass(frozen=True)
class Disk:
    number: int
    wipe: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True)
class Target:
    disk: int
    partition: int


@dataclass(frozen=True)
class Preinstallation:
    """The content of pass windowsPE."""

    language: str
    drivers: tuple[str, ...]
    disks: tuple[Disk, ...]
    image: tuple[str, str]
    """``/IMAGE/NAME``, and its value."""
    target: Target
    key: str | None
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Logon:
    user: str
    password: str


@dataclass(frozen=True)
class Answer:
    """A whole answer file; missing passes are empty."""

    preinstallation: Preinstallation | None
    computer_name: str
    specialize: tuple[str, ...]
    """Commands, in order."""
    password: str | None
    """The administrator's, decoded."""
    autologon: Logon | None
    first_logon: tuple[str, ...]
    time_zone: str


def read(text: bytes) -> Answer:
    """Parse the answer file; raises AnswerError."""
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise AnswerError("a document type is not taken")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise AnswerError(f"no XML: {error}") from error
    return _answer(_passes(root))


def _passes(root: ET.Element) -> dict[tuple[str, str], ET.Element]:
    """Components by (pass, name), each fully checked."""
    if root.tag != f"{UNATTEND}unattend":
        raise AnswerError(f"unknown element {root.tag}")
    found: dict[tuple[str, str], ET.Element] = {}
    for settings in root:
        name = settings.get("pass", "")
        if settings.tag != f"{UNATTEND}settings" or set(settings.attrib) != {"pass"}:
            raise AnswerError(f"unknown element {_plain(settings)}")
        if name not in COMPONENTS:
            raise AnswerError(f"unknown pass {name!r}")
        for component in settings:
            which = name, _component(name, component)
            if which in found:
                raise AnswerError(f"component {which[1]} twice in pass {name}")
            found[which] = component
    return found


def _component(name: str, component: ET.Element) -> str:
    given = dict(component.attrib)
    kind = given.pop("name", "")
    if component.tag != f"{UNATTEND}component" or kind not in COMPONENTS[name]:
        raise AnswerError(f"unknown component {kind!r} in pass {name}")
    if given != IDENTITY:
        raise AnswerError(f"component {kind} says {given}, and Setup looks for {IDENTITY}")
    _check(component, (), COMPONENTS[name][kind], f"{name}/{kind}")
    return kind


def _check(
    element: ET.Element, path: tuple[str, ...], known: frozenset[tuple[str, ...]], at: str
) -> None:
    """Refuse elements that are unknown or duplicate, or have an invalid value."""
    seen: set[str] = set()
    for child in element:
        name = _plain(child)
        here, where = (*path, name), f"{at}/{name}"
        if not child.tag.startswith(UNATTEND) or not any(one[: len(here)] == here for one in known):
            raise AnswerError(f"unknown element {where}")
        others = set(child.attrib) - {f"{WCM}action", f"{WCM}keyValue"}
        if others or child.get(f"{WCM}action", "add") != "add":
            raise AnswerError(f"unknown attribute {dict(child.attrib)} of {where}")
        if name in seen and f"{WCM}action" not in child.attrib:
            raise AnswerError(f"{where} twice")
        seen.add(name)
        if here in known:
            _leaf(child, name, where)
        else:
            if (child.text or "").strip():
                raise AnswerError(f"{where} has text: {child.text!r}")
            _check(child, here, known, where)


def _leaf(element: ET.Element, name: str, where: str) -> None:
    if len(element):
        raise AnswerError(f"unknown element {where}/{_plain(element[0])}")
    value = element.text or ""
    wanted = VALUES.get(name)
    if wanted is not None and not re.fullmatch(wanted, value):
        raise AnswerError(f"{where} is {value!r}")


def _answer(found: dict[tuple[str, str], ET.Element]) -> Answer:
    shell = found.get(("specialize", "Microsoft-Windows-Shell-Setup"))
    oobe = found.get(("oobeSystem", "Microsoft-Windows-Shell-Setup"))
    deployment = found.get(("specialize", "Microsoft-Windows-Deployment"))
    name = _text(shell, "ComputerName")
    if len(name) > LONGEST_COMPUTER_NAME:
        raise AnswerError(f"ComputerName {name!r} has more than {LONGEST_COMPUTER_NAME} characters")
    password = _find(oobe, "UserAccounts/AdministratorPassword")
    return Answer(
        preinstallation=_preinstallation(found),
        computer_name=name,
        specialize=_commands(
            deployment, "RunSynchronous/RunSynchronousCommand", "Path", LONGEST_PATH
        ),
        password=None if password is None else _password(password, "AdministratorPassword"),
        autologon=_autologon(oobe),
        first_logon=_commands(
            oobe, "FirstLogonCommands/SynchronousCommand", "CommandLine", LONGEST_COMMAND_LINE
        ),
        time_zone=_text(oobe, "TimeZone"),
    )


def _preinstallation(
    found: dict[tuple[str, str], ET.Element],
) -> Preinstallation | None:
    setup = found.get(("windowsPE", "Microsoft-Windows-Setup"))
    if setup is None:
        return None
    if _text(setup, "UserData/AcceptEula") != "true":
        raise AnswerError("AcceptEula is not true: Setup shows the licence and waits")
    region = found.get(("windowsPE", "Microsoft-Windows-International-Core-WinPE"))
    language = _text(region, "SetupUILanguage/UILanguage")
    if not language:
        raise AnswerError("no SetupUILanguage/UILanguage: Setup shows its first page and waits")
    driver = found.get(("windowsPE", "Microsoft-Windows-PnpCustomizationsWinPE"))
    image = _find(setup, "ImageInstall/OSImage")
    return Preinstallation(
        language=language,
        drivers=_drivers(driver),
        disks=tuple(_disk(one) for one in _all(setup, "DiskConfiguration/Disk")),
        image=_image(image),
        target=Target(
            int(_text(image, "InstallTo/DiskID") or -1),
            int(_text(image, "InstallTo/PartitionID") or -1),
        ),
        key=_text(setup, "UserData/ProductKey/Key") or None,
        commands=_commands(setup, "RunSynchronous/RunSynchronousCommand", "Path", LONGEST_PATH),
    )


def _drivers(component: ET.Element | None) -> tuple[str, ...]:
    listed = _all(component, "DriverPaths/PathAndCredentials")
    keys = [one.get(f"{WCM}keyValue") for one in listed]
    if None in keys or len(set(keys)) != len(keys):
        raise AnswerError(f"DriverPaths/PathAndCredentials need keyValues of their own: {keys}")
    return tuple(_text(one, "Path") for one in listed)


def _image(image: ET.Element | None) -> tuple[str, str]:
    meta = _all(image, "InstallFrom/MetaData")
    if len(meta) != 1:
        raise AnswerError(f"{len(meta)} of InstallFrom/MetaData: Setup shows the images and waits")
    return _text(meta[0], "Key"), _text(meta[0], "Value")


def _disk(element: ET.Element) -> Disk:
    changes = {
        int(_text(one, "PartitionID")): one
        for one in _ordered(_all(element, "ModifyPartitions/ModifyPartition"))
    }
    made = []
    for number, one in enumerate(_ordered(_all(element, "CreatePartitions/CreatePartition")), 1):
        change = changes.pop(number, None)
        extend, size = _text(one, "Extend") == "true", _text(one, "Size")
        if extend == bool(size):
            raise AnswerError(f"partition {number}: either Size or Extend")
        made.append(
            Partition(
                number=number,
                kind=_text(one, "Type"),
                mib=int(size) if size else None,
                format=_text(change, "Format") or None,
                label=_text(change, "Label"),
                letter=_text(change, "Letter"),
                active=_text(change, "Active") == "true",
            )
        )
    if changes:
        raise AnswerError(f"ModifyPartition of partitions that are not created: {sorted(changes)}")
    wipe = _text(element, "WillWipeDisk") == "true"
    return Disk(int(_text(element, "DiskID") or -1), wipe, tuple(made))


def _autologon(oobe: ET.Element | None) -> Logon | None:
    logon = _find(oobe, "AutoLogon")
    if logon is None or _text(logon, "Enabled") != "true":
        return None
    password = _find(logon, "Password")
    if password is None:
        raise AnswerError("AutoLogon without Password")
    return Logon(_text(logon, "Username"), _password(password, "Password"))


def _password(element: ET.Element, kind: str) -> str:
    """Decode a password: plain, or base64 of UTF-16 of the password and its element's name."""
    value = _text(element, "Value")
    if _text(element, "PlainText") != "false":
        return value
    try:
        plain = base64.b64decode(value, validate=True).decode("utf-16-le")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise AnswerError(f"{kind} is not encoded as Setup reads it: {error}") from error
    if not plain.endswith(kind):
        raise AnswerError(f"{kind} is encoded without the ending {kind!r}")
    return plain.removesuffix(kind)


def _commands(element: ET.Element | None, path: str, leaf: str, longest: int) -> tuple[str, ...]:
    lines = tuple(_text(one, leaf) for one in _ordered(_all(element, path)))
    for line in lines:
        if not line or len(line) > longest:
            raise AnswerError(f"a command of {len(line)} characters; from 1 to {longest} are taken")
    return lines


def _ordered(elements: list[ET.Element]) -> list[ET.Element]:
    """Sort by Order, which must count from 1 without gaps."""
    orders = [int(_text(one, "Order") or 0) for one in elements]
    if sorted(orders) != list(range(1, len(orders) + 1)):
        raise AnswerError(f"Order is {orders}, not 1 to {len(orders)}")
    return sorted(elements, key=lambda one: int(_text(one, "Order")))


def _all(element: ET.Element | None, path: str) -> list[ET.Element]:
    if element is None:
        return []
    return element.findall("/".join(f"{UNATTEND}{name}" for name in path.split("/")))


def _find(element: ET.Element | None, path: str) -> ET.Element | None:
    found = _all(element, path)
    return found[0] if found else None


def _text(element: ET.Element | None, path: str) -> str:
    found = _find(element, path)
    return "" if found is None else (found.text or "")


def _plain(element: ET.Element) -> str:
    return element.tag.removeprefix(UNATTEND)
