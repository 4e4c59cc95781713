"""The components that our answer files have, the passes they stand in, and what may be in them.

Not all that Windows knows: what is not here is not written by us, and is a mistake in a document
of ours. Names and places are those of the public answer files of rgl/windows-vagrant,
kubernetes-sigs/image-builder, dockur/windows, avocado-framework/avocado-vt and Kubeinit; limits
are those of Microsoft's reference of unattended setup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Pass = Literal["windowsPE", "offlineServicing", "generalize", "specialize", "oobeSystem"]

_BOOL = "true|false"
_TRUE = "true"
_NUMBER = "0|[1-9][0-9]*"
_TEXT = r"\S|\S.*\S"
_LOCALE = r"[a-z]{2,3}(-[A-Z][a-z]{3})?-[A-Z]{2}"
_KEYBOARD = "[0-9a-f]{4}:[0-9a-f]{8}"
_SHOW_UI = "Always|OnError|Never"
_KEY = "[A-Z0-9]{5}(-[A-Z0-9]{5}){4}"
_BASE64 = "[A-Za-z0-9+/]{4,}={0,2}"
_IMAGE = r"Windows Server (2019|2022|2025) SERVER(STANDARD|DATACENTER)(CORE)?"
_NETBIOS = r"(?!\d+$)[A-Za-z0-9](-?[A-Za-z0-9]+)*"


@dataclass(frozen=True, slots=True)
class Element:
    """One element that may be there."""

    name: str
    holds: str | tuple[Element, ...]
    """A regular expression that its whole text matches, or its children in any order."""
    needed: bool = True
    """Whether it must be there where its parent is."""
    entry: bool = False
    """Whether it is an entry of a list: each of them has ``wcm:action="add"``."""
    many: bool = False
    """Whether there may be several."""


def _maybe(name: str, holds: str | tuple[Element, ...]) -> Element:
    return Element(name, holds, needed=False)


def _list(name: str, *children: Element) -> Element:
    return Element(name, children, entry=True, many=True)


def _list_of_one(name: str, *children: Element) -> Element:
    return Element(name, children, entry=True)


_LANGUAGES = (
    Element("InputLocale", _KEYBOARD),
    Element("SystemLocale", _LOCALE),
    Element("UILanguage", _LOCALE),
    Element("UserLocale", _LOCALE),
)
_RUN = Element(
    "RunSynchronous",
    (
        _list(
            "RunSynchronousCommand",
            Element("Order", _NUMBER),
            Element("Path", _TEXT),
            _maybe("Description", _TEXT),
        ),
    ),
)
_PASSWORD = (Element("Value", _BASE64), Element("PlainText", "false"))
_DISK = _list_of_one(
    "Disk",
    Element("DiskID", _NUMBER),
    Element("WillWipeDisk", _TRUE),
    Element(
        "CreatePartitions",
        (
            _list(
                "CreatePartition",
                Element("Order", _NUMBER),
                Element("Type", "Primary|EFI|MSR"),
                _maybe("Size", _NUMBER),
                _maybe("Extend", _TRUE),
            ),
        ),
    ),
    Element(
        "ModifyPartitions",
        (
            _list(
                "ModifyPartition",
                Element("Order", _NUMBER),
                Element("PartitionID", _NUMBER),
                _maybe("Active", _TRUE),
                _maybe("Format", "NTFS|FAT32"),
                _maybe("Label", _TEXT),
                _maybe("Letter", "[C-Z]"),
            ),
        ),
    ),
)
_OS_IMAGE = Element(
    "OSImage",
    (
        Element(
            "InstallFrom",
            (_list_of_one("MetaData", Element("Key", "/IMAGE/NAME"), Element("Value", _IMAGE)),),
        ),
        Element("InstallTo", (Element("DiskID", _NUMBER), Element("PartitionID", _NUMBER))),
        Element("WillShowUI", _SHOW_UI),
        Element("InstallToAvailablePartition", "false"),
    ),
)
_USER_DATA = Element(
    "UserData",
    (
        Element("AcceptEula", _TRUE),
        Element("FullName", _TEXT),
        Element("Organization", _TEXT),
        Element("ProductKey", (_maybe("Key", _KEY), Element("WillShowUI", _SHOW_UI))),
    ),
)
_SETUP = (
    Element("DiskConfiguration", (_DISK, Element("WillShowUI", _SHOW_UI))),
    Element("ImageInstall", (_OS_IMAGE,)),
    _USER_DATA,
    Element("DynamicUpdate", (Element("Enable", "false"), Element("WillShowUI", _SHOW_UI))),
    Element("Diagnostics", (Element("OptIn", "false"),)),
    Element("EnableFirewall", _BOOL),
    _RUN,
)
_OOBE = Element(
    "OOBE",
    (
        Element("HideEULAPage", _TRUE),
        Element("HideLocalAccountScreen", _TRUE),
        Element("HideOEMRegistrationScreen", _TRUE),
        Element("HideOnlineAccountScreens", _TRUE),
        Element("HideWirelessSetupInOOBE", _TRUE),
        Element("NetworkLocation", "Home|Work|Other"),
        Element("ProtectYourPC", "[1-3]"),
    ),
)
_AUTO_LOGON = Element(
    "AutoLogon",
    (
        Element("Password", _PASSWORD),
        Element("Enabled", _TRUE),
        Element("LogonCount", "[1-9]"),
        Element("Username", "Administrator"),
    ),
)
_FIRST_LOGON = Element(
    "FirstLogonCommands",
    (
        _list(
            "SynchronousCommand",
            Element("Order", _NUMBER),
            Element("CommandLine", _TEXT),
            _maybe("Description", _TEXT),
            _maybe("RequiresUserInput", _BOOL),
        ),
    ),
)
_DRIVER_PATHS = Element(
    "DriverPaths", (_list("PathAndCredentials", Element("Path", r"[C-Z]:\\[^<>\"|?*]*")),)
)

TABLE: Mapping[Pass, Mapping[str, tuple[Element, ...]]] = {
    "windowsPE": {
        "Microsoft-Windows-International-Core-WinPE": (
            Element("SetupUILanguage", (Element("UILanguage", _LOCALE),)),
            *_LANGUAGES,
        ),
        "Microsoft-Windows-PnpCustomizationsWinPE": (_DRIVER_PATHS,),
        "Microsoft-Windows-Setup": _SETUP,
    },
    "offlineServicing": {
        "Microsoft-Windows-LUA-Settings": (Element("EnableLUA", _BOOL),),
    },
    "generalize": {
        "Microsoft-Windows-Security-SPP": (Element("SkipRearm", "[01]"),),
        "Microsoft-Windows-PnPSysprep": (Element("PersistAllDeviceInstalls", _BOOL),),
    },
    "specialize": {
        "Microsoft-Windows-Shell-Setup": (
            Element("ComputerName", _NETBIOS),
            _maybe("ProductKey", _KEY),
        ),
        "Microsoft-Windows-Deployment": (_RUN,),
        "Microsoft-Windows-International-Core": _LANGUAGES,
        "Microsoft-Windows-Security-SPP-UX": (Element("SkipAutoActivation", _BOOL),),
        "Microsoft-Windows-SQMApi": (Element("CEIPEnabled", "[01]"),),
        "Microsoft-Windows-ServerManager-SvrMgrNc": (
            Element("DoNotOpenServerManagerAtLogon", _BOOL),
        ),
    },
    "oobeSystem": {
        "Microsoft-Windows-International-Core": _LANGUAGES,
        "Microsoft-Windows-Shell-Setup": (
            _OOBE,
            Element("TimeZone", _TEXT),
            Element("UserAccounts", (Element("AdministratorPassword", _PASSWORD),)),
            _AUTO_LOGON,
            _FIRST_LOGON,
        ),
    },
}
"""By pass, the components that may stand in it, and what each may hold."""
OPTIONAL = frozenset(
    {
        "Microsoft-Windows-PnpCustomizationsWinPE",
        "Microsoft-Windows-ServerManager-SvrMgrNc",
    }
)
"""Components that are not in every document."""
