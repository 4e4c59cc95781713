"""All that an answer file and the scripts beside it are told, decided: frozen data.

``settings.json`` is read by ``bootstrap.ps1`` at the end of an installation::

    {"authorized_key": "ssh-ed25519 AAAA... comment", "openssh": "openssh.zip",
     "release": "2022", "storage": "virtio", "surface": "core", "virtio": true}

``clone.json`` is read by ``clone.ps1`` at the first start of a clone::

    {"authorized_key": "ssh-ed25519 AAAA... comment",
     "cards": [{"address": "192.0.2.10/24", "dns": ["192.0.2.1"], "gateway": "192.0.2.1",
                "mac": "52:54:00:00:00:01", "mtu": 1450, "name": "cluster"}],
     "computer_name": "WIN1", "management_address": "192.0.2.10",
     "region": {"keyboard": "0409:00000409", "locale": "en-US", "time_zone": "UTC"},
     "time_server": null}

What is not known is ``null``; no key is ever left out, and no secret is in them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from lab.imaging.windows.release import WantedImage

Firmware = Literal["bios", "uefi"]
SETTINGS = "settings.json"
CLONE = "clone.json"
OPENSSH = "openssh.zip"
"""Name on the answer medium of Win32-OpenSSH's release archive."""
Storage = Literal["virtio", "sata"]
"""``sata`` needs no driver: the fallback where there is no virtio-win medium."""


@dataclass(frozen=True, slots=True)
class Region:
    """Language and time of a guest."""

    locale: str = "en-US"
    """Of the system, the user and the user interface; one that the medium has."""
    keyboard: str = "0409:00000409"
    time_zone: str = "UTC"
    """A Windows time zone's name: ``UTC``, ``W. Europe Standard Time``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """An unattended installation."""

    wanted: WantedImage
    firmware: Firmware
    storage: Storage
    key: str | None = field(repr=False)
    """Product key; None on evaluation media, where any key stops the installation."""
    computer_name: str
    """At most 15 characters."""
    administrator_password: str = field(repr=False)
    """Secret, and of this installation alone."""
    region: Region = Region()
    organization: str = "hybridlab"


@dataclass(frozen=True, slots=True)
class CloneCard:
    """A network card of a clone: what it is called and what address it gets."""

    name: str
    mac: str
    address: str | None
    """``192.0.2.10/24``; None for DHCP."""
    gateway: str | None
    dns: tuple[str, ...]
    mtu: int | None


@dataclass(frozen=True, slots=True)
class CloneSettings:
    """What makes a clone of a golden image one certain machine."""

    computer_name: str
    administrator_password: str = field(repr=False)
    """Secret, and of this machine alone."""
    authorized_key: str
    """Who may log in over SSH: ``ssh-ed25519 AAAA... comment``."""
    management_address: str
    """Goes into the WinRM certificate as its subject's alternative name."""
    cards: tuple[CloneCard, ...]
    time_server: str | None
    region: Region = Region()


def settings_document(settings: Settings, authorized_key: str, *, has_openssh: bool) -> bytes:
    """``settings.json``; the same settings give the same bytes.

    Parameters
    ----------
    authorized_key
        Who may log in over SSH: ``ssh-ed25519 AAAA... comment``.
    has_openssh
        Whether the archive is on the answer medium; else Windows is asked for its own OpenSSH.

    """
    told: dict[str, object] = {
        "authorized_key": authorized_key,
        "openssh": OPENSSH if has_openssh else None,
        "release": settings.wanted.year,
        "storage": settings.storage,
        "surface": settings.wanted.surface,
        "virtio": settings.storage == "virtio",  # whose medium has guest tools, too
    }
    return _json(told)


def clone_document(settings: CloneSettings) -> bytes:
    """``clone.json``: all of a clone's settings but its password."""
    told = asdict(settings)
    del told["administrator_password"]
    return _json(told)


def _json(value: dict[str, object]) -> bytes:
    """ASCII, so that Windows PowerShell reads it right whatever encoding it takes it for."""
    return json.dumps(value, indent=1, sort_keys=True).encode("ascii") + b"\n"


_STANDARD_ZONES = """
AUS Central; AUS Eastern; Afghanistan; Alaskan; Alberta; Aleutian; Altai; Arab; Arabian; Arabic;
Argentina; Astrakhan; Atlantic; Aus Central W.; Azerbaijan; Azores; Bahia; Bangladesh; Belarus;
Bougainville; British Columbia; Canada Central; Cape Verde; Caucasus; Cen. Australia; Central
America; Central Asia; Central Brazilian; Central Europe; Central European; Central Pacific;
Central; Chatham Islands; China; Cuba; Dateline; E. Africa; E. Australia; E. Europe; E. South
America; Easter Island; Eastern; Egypt; Ekaterinburg; FLE; Fiji; GMT; GTB; Georgian; Greenland;
Greenwich; Haiti; Hawaiian; India; Iran; Israel; Jordan; Kaliningrad; Kamchatka; Korea; Libya;
Line Islands; Lord Howe; Magadan; Magallanes; Manitoba; Marquesas; Mauritius; Mid-Atlantic;
Middle East; Montevideo; Morocco; Mountain; Myanmar; N. Central Asia; Namibia; Nepal; New
Zealand; Newfoundland; Norfolk; North Asia East; North Asia; North Korea; Omsk; Pacific SA;
Pacific; Pakistan; Paraguay; Qyzylorda; Romance; Russian; SA Eastern; SA Pacific; SA Western; SE
Asia; Saint Pierre; Sakhalin; Samoa; Sao Tome; Saratov; Singapore; South Africa; South Sudan;
Sri Lanka; Sudan; Syria; Taipei; Tasmania; Tocantins; Tokyo; Tomsk; Tonga; Transbaikal; Turkey;
Turks And Caicos; US Eastern; US Mountain; Ulaanbaatar; Venezuela; Vladivostok; Volgograd; W.
Australia; W. Central Africa; W. Europe; W. Mongolia; West Asia; West Bank; West Pacific;
Yakutsk; Yukon
"""
_OTHER_ZONES = """
Central Standard Time (Mexico); Eastern Standard Time (Mexico); Mountain Standard Time (Mexico);
Pacific Standard Time (Mexico); Russia Time Zone 10; Russia Time Zone 11; Russia Time Zone 3;
UTC; UTC+12; UTC+13; UTC-02; UTC-08; UTC-09; UTC-11
"""


def _listed(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split(";")]


TIME_ZONES = frozenset(
    (*(f"{name} Standard Time" for name in _listed(_STANDARD_ZONES)), *_listed(_OTHER_ZONES))
)
"""Windows' names of time zones, as ``tzutil /l`` lists them.

From CLDR (``windowsZones.xml``, as tzlocal 5.4.5 has it), and two that Windows keeps though CLDR
does not. A name that Setup does not know stops it in the middle of specialize.
"""
