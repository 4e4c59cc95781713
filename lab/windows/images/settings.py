"""Settings of Windows guests: releases, regions, passwords, product keys, and their files.

Build numbers and image names are those of Microsoft's media; the keys are Microsoft's published
KMS client keys, which activate nothing without a KMS host.

``bootstrap.ps1`` reads ``settings.json`` at the end of an installation::

    {"authorized_key": "ssh-ed25519 AAAA... comment", "openssh": "openssh.zip",
     "release": "2022", "storage": "virtio", "surface": "core", "virtio": true}

``clone.ps1`` reads ``clone.json`` at the first start of a clone::

    {"authorized_key": "ssh-ed25519 AAAA... comment",
     "cards": [{"address": "192.0.2.10/24", "dns": ["192.0.2.1"], "gateway": "192.0.2.1",
                "mac": "52:54:00:00:00:01", "mtu": 1450, "name": "cluster"}],
     "computer_name": "WIN1", "management_address": "192.0.2.10",
     "region": {"keyboard": "0409:00000409", "locale": "en-US", "time_zone": "UTC"},
     "time_server": null}

Unknown values are ``null``; every key is always present. The files contain no secrets.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import string
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lab._errors import PreflightError

if TYPE_CHECKING:
    from lab.inventory.inventory import Secret
    from lab.machines.images.golden import Storage
    from lab.windows.images.medium import Channel


Year = Literal["2019", "2022", "2025"]
Edition = Literal["standard", "datacenter"]
Surface = Literal["core", "desktop"]
"""Without or with the graphical shell."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release of Windows Server."""

    year: Year
    build: int
    least_revision: int
    """Lowest usable revision (fourth part of the version) of the build."""
    why: str
    """What older revisions lack; empty if all are usable."""
    drivers: str
    """Name of its folders on the virtio-win medium."""
    keys: Mapping[Edition, str]
    """KMS client keys for volume media."""

    @property
    def name(self) -> str:
        """The full product name."""
        return f"Windows Server {self.year}"


def _keys(standard: str, datacenter: str) -> Mapping[Edition, str]:
    return {"standard": standard, "datacenter": datacenter}


_VXLAN = "VXLAN overlay networks need KB4489899 (March 2019)"
_2019 = _keys("N69G4-B89J2-4G8F4-WWYCC-J464C", "WMDGN-G9PQG-XVVXX-R3X43-63DFG")
_2022 = _keys("VDYBN-27WPP-V4HQT-9VMD4-VMK7H", "WX4NM-KYWYW-QJJR4-XV3QB-6VM33")
_2025 = _keys("TVRH6-WHNXV-R9WG3-9XRFY-MY832", "D764K-2NDRG-47T6Q-P8T8W-YP6DF")
RELEASES: Mapping[Year, Release] = {
    "2019": Release("2019", 17763, 379, _VXLAN, "2k19", _2019),
    "2022": Release("2022", 20348, 0, "", "2k22", _2022),
    "2025": Release("2025", 26100, 0, "", "2k25", _2025),
}


@dataclass(frozen=True, slots=True)
class WantedImage:
    """A selection among a medium's images."""

    year: Year
    edition: Edition
    surface: Surface

    @property
    def release(self) -> Release:
        """Its release."""
        return RELEASES[self.year]

    @property
    def name(self) -> str:
        """NAME in the WIM, on evaluation and volume media alike."""
        core = "CORE" if self.surface == "core" else ""
        return f"{self.release.name} SERVER{self.edition.upper()}{core}"


Firmware = Literal["bios", "uefi"]
SETTINGS = "settings.json"
CLONE = "clone.json"
OPENSSH = "openssh.zip"
"""Name of Win32-OpenSSH's release archive on the answer medium."""


@dataclass(frozen=True, slots=True)
class Region:
    """Language, keyboard and time zone of a guest."""

    locale: str = "en-US"
    """Locale of system, user and user interface; the medium must have it."""
    keyboard: str = "0409:00000409"
    time_zone: str = "UTC"
    """Windows' name of a time zone: ``UTC``, ``W. Europe Standard Time``."""


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
    """Secret; for this installation only."""
    region: Region = Region()
    organization: str = "hybridlab"


@dataclass(frozen=True, slots=True)
class CloneCard:
    """Name and address of a clone's network interface."""

    name: str
    mac: str
    address: str | None
    """``192.0.2.10/24``; None for DHCP."""
    gateway: str | None
    dns: tuple[str, ...]
    mtu: int | None


@dataclass(frozen=True, slots=True)
class CloneSettings:
    """The identity of one clone of a golden image."""

    computer_name: str
    administrator_password: str = field(repr=False)
    """Secret; for this machine only."""
    authorized_key: str
    """SSH public key that may log in: ``ssh-ed25519 AAAA... comment``."""
    management_address: str
    """The WinRM certificate's subject alternative name."""
    cards: tuple[CloneCard, ...]
    time_server: str | None
    region: Region = Region()


def settings_document(settings: Settings, authorized_key: str, *, has_openssh: bool) -> bytes:
    """``settings.json``; the same settings give the same bytes.

    ``authorized_key``: SSH public key that may log in: ``ssh-ed25519 AAAA... comment``.
    ``has_openssh``: whether the archive is on the answer medium; otherwise Windows installs its
    own.
    """
    source: dict[str, object] = {
        "authorized_key": authorized_key,
        "openssh": OPENSSH if has_openssh else None,
        "release": settings.wanted.year,
        "storage": settings.storage,
        "surface": settings.wanted.surface,
        "virtio": settings.storage == "virtio",  # its medium has guest tools, too
    }
    return _json(source)


def clone_document(settings: CloneSettings) -> bytes:
    """``clone.json``: a clone's settings without its password."""
    source = asdict(settings)
    del source["administrator_password"]
    return _json(source)


def _json(value: dict[str, object]) -> bytes:
    """ASCII, which Windows PowerShell reads correctly in any encoding."""
    return json.dumps(value, indent=1, sort_keys=True).encode("ascii") + b"\n"


TIME_ZONES = frozenset(
    Path(__file__).with_name("time_zones.txt").read_text(encoding="ascii").splitlines()
)
"""Names of Windows time zones, as ``tzutil /l`` lists them.

From CLDR (``windowsZones.xml`` in tzlocal 5.4.5), and two that only Windows still has. A name that
Setup does not know stops it in the middle of specialize.
"""


Suffix = Literal["AdministratorPassword", "Password"]
"""Name of the element that contains it: Windows appends it to the password before encoding both.
The latter is for local accounts and automatic logons.
"""
LENGTH = 24
"""Characters, some 143 bits; Windows accepts up to 127."""
MASK = "********"
_KINDS = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.")
"""All four classes of Windows' complexity rule, which requires three. No character is special in
cmd, PowerShell, XML, JSON or the user part of a URL.
"""
_VALUE = re.compile(r"(<(?:\w*Password)\b[^>]*>\s*<Value>)[^<]*(?=</Value>)")
_KEY = re.compile(r"\b[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}\b")


def random_password() -> str:
    """A new password that satisfies Windows' complexity rule; it begins with a letter."""
    characters = "".join(_KINDS)
    made = ""
    while not (made[:1].isalpha() and all(set(made) & set(kind) for kind in _KINDS)):
        made = "".join(secrets.choice(characters) for _ in range(LENGTH))
    return made


def encode_password(password: str, suffix: Suffix) -> str:
    """A password as in an answer file with ``PlainText`` false: obfuscated, not encrypted."""
    return base64.b64encode(f"{password}{suffix}".encode("utf-16-le")).decode("ascii")


def mask(document: str) -> str:
    """An answer file to show, without passwords and without keys other than public ones."""
    public = {key for release in RELEASES.values() for key in release.keys.values()}
    hidden = _VALUE.sub(lambda found: found[1] + MASK, document)
    return _KEY.sub(lambda found: found[0] if found[0] in public else MASK, hidden)


SECRET = "product-key"  # noqa: S105  a name
"""Secret in the inventory: the key of every Windows image; the key for one image has the image's
name appended, ``product-key-windows-server-2022``.
"""
PATTERN = r"^[A-Z0-9]{5}(-[A-Z0-9]{5}){4}$"
HIDDEN = "-".join(["XXXXX"] * 5)
"""Shown in place of a key."""


def secret_name(image: str, known: Collection[str]) -> str | None:
    """Name of the secret with an image's product key; None if the inventory has none."""
    return next((name for name in (f"{SECRET}-{image}", SECRET) if name in known), None)


def check_key(name: str, value: str) -> str:
    """Normalise a product key; lower case is accepted.

    Raises PreflightError, without the value, when it is not a product key.
    """
    written = value.upper()
    if not re.search(PATTERN, written):
        raise PreflightError(
            "reading the product key",
            f"[secrets.{name}] holds none",
            "write five groups of five letters and digits, with '-' between them",
        )
    return written


def product_key(wanted: WantedImage, channel: Channel, own: str | None) -> str | None:
    """The key for a medium; None on evaluation media, where any key stops the installation.

    ``own``: the recipe's or the inventory's; None for Microsoft's public KMS client key on volume
    media.

    Raises PreflightError when there is a key for evaluation media, or none for media that need one.
    """
    doing = f"choosing the product key of {wanted.release.name}"
    if channel == "evaluation":
        if own is None:
            return None
        raise PreflightError(
            doing,
            'evaluation media take none: Setup would say "No images are available"',
            'leave "key" out of the recipe, or use a medium of the volume licence',
        )
    if own is not None:
        return own
    if channel == "volume":
        return wanted.release.keys[wanted.edition]
    if channel == "retail":
        raise PreflightError(
            doing,
            "retail media need one, and none is configured",
            f"configure it in the inventory: [secrets.{SECRET}] file = ...",
        )
    return None


_SECRET_MOST = 4096
"""Bytes of a file that are read: secrets are shorter."""


def read_secret(name: str, secret: Secret, doing: str) -> str:
    """Read a secret, without surrounding white space.

    Raises PreflightError when the variable or file does not exist, cannot be read, or is empty.
    """
    hint = f"set it, or leave [secrets.{name}] out of the inventory"
    if secret.file is None:
        source = f"the environment variable {secret.environment} of [secrets.{name}]"
        found = os.environ.get(secret.environment or "")
        if found is None:
            raise PreflightError(doing, f"{source} is not set", hint)
    else:
        source = f"'{secret.file}' of [secrets.{name}]"
        try:
            with secret.file.open("rb") as file:
                found = file.read(_SECRET_MOST).decode("utf-8", errors="replace")
        except OSError as error:
            raise PreflightError(doing, f"{source}: {error.strerror}", hint) from error
    if not found.strip():
        raise PreflightError(doing, f"{source} is empty", hint)
    return found.strip()
