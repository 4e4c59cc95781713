"""Read an answer file like Setup; that it holds only what Windows knows is tested elsewhere."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from xml.etree import ElementTree as ET

_NAMESPACE = {"": "urn:schemas-microsoft-com:unattend"}


class AnswerError(Exception):
    """Setup would stop at the file."""


@dataclass(frozen=True)
class Partition:
    number: int
    kind: str
    """``EFI``, ``MSR``, ``Primary``."""
    mib: int | None
    """None for the remaining space."""
    format: str
    label: str
    active: bool


@dataclass(frozen=True)
class Logon:
    user: str
    password: str


class Answer:
    """A whole answer file; missing settings are empty. Raises AnswerError."""

    def __init__(self, text: bytes) -> None:
        try:
            root = ET.fromstring(text)
        except ET.ParseError as error:
            raise AnswerError(f"no XML: {error}") from error
        self._components = {
            f"{settings.get('pass')}/{one.get('name', '').removeprefix('Microsoft-Windows-')}": one
            for settings in root
            for one in settings
        }

    def all(self, component: str, path: str) -> list[ET.Element]:
        """Elements of ``windowsPE/Setup``, by their Order where they have one."""
        found = self._components.get(component)
        elements = [] if found is None else found.findall(path, _NAMESPACE)
        return sorted(elements, key=lambda one: int(_text(one, "Order") or 0))

    def text(self, component: str, path: str) -> str:
        found = self.all(component, path)
        return (found[0].text or "") if found else ""

    @property
    def computer_name(self) -> str:
        return self.text("specialize/Shell-Setup", "ComputerName")

    @property
    def image(self) -> tuple[str, str]:
        """``/IMAGE/NAME``, and its value."""
        meta = "ImageInstall/OSImage/InstallFrom/MetaData"
        key, value = (self.text("windowsPE/Setup", f"{meta}/{one}") for one in ("Key", "Value"))
        return key, value

    @property
    def partitions(self) -> tuple[Partition, ...]:
        disk = "DiskConfiguration/Disk"
        changes = {
            int(_text(one, "PartitionID")): one
            for one in self.all("windowsPE/Setup", f"{disk}/ModifyPartitions/ModifyPartition")
        }
        made = self.all("windowsPE/Setup", f"{disk}/CreatePartitions/CreatePartition")
        return tuple(
            Partition(
                number=number,
                kind=_text(one, "Type"),
                mib=int(_text(one, "Size")) if _text(one, "Size") else None,
                format=_text(changes.get(number), "Format"),
                label=_text(changes.get(number), "Label"),
                active=_text(changes.get(number), "Active") == "true",
            )
            for number, one in enumerate(made, 1)
        )

    @property
    def target(self) -> int:
        """The number of Windows' partition."""
        return int(self.text("windowsPE/Setup", "ImageInstall/OSImage/InstallTo/PartitionID"))

    @property
    def drivers(self) -> tuple[str, ...]:
        paths = "DriverPaths/PathAndCredentials/Path"
        return tuple(one.text or "" for one in self.all("windowsPE/PnpCustomizationsWinPE", paths))

    def commands(self, component: str) -> tuple[str, ...]:
        """Of ``windowsPE/Setup`` or ``specialize/Deployment``, in order."""
        found = self.all(component, "RunSynchronous/RunSynchronousCommand")
        return tuple(_text(one, "Path") for one in found)

    @property
    def first_logon(self) -> tuple[str, ...]:
        found = self.all("oobeSystem/Shell-Setup", "FirstLogonCommands/SynchronousCommand")
        return tuple(_text(one, "CommandLine") for one in found)

    @property
    def password(self) -> str:
        """The administrator's, decoded; empty if there is none."""
        return self._password("UserAccounts/AdministratorPassword")

    @property
    def autologon(self) -> Logon | None:
        if self.text("oobeSystem/Shell-Setup", "AutoLogon/Enabled") != "true":
            return None
        user = self.text("oobeSystem/Shell-Setup", "AutoLogon/Username")
        return Logon(user, self._password("AutoLogon/Password"))

    def _password(self, path: str) -> str:
        """Plain, or base64 of UTF-16 of the password and its element's name."""
        value = self.text("oobeSystem/Shell-Setup", f"{path}/Value")
        if self.text("oobeSystem/Shell-Setup", f"{path}/PlainText") != "false":
            return value
        kind = path.rpartition("/")[2]
        try:
            plain = base64.b64decode(value, validate=True).decode("utf-16-le")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise AnswerError(f"{kind} is not encoded as Setup reads it: {error}") from error
        if not plain.endswith(kind):
            raise AnswerError(f"{kind} is encoded without the ending {kind!r}")
        return plain.removesuffix(kind)


def _text(element: ET.Element | None, path: str) -> str:
    return "" if element is None else (element.findtext(path, "", _NAMESPACE) or "")
