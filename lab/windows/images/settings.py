"""Settings of Windows guests: passwords, product keys, and their files.

``bootstrap.ps1`` reads ``settings.json`` at the end of an installation::

    {"authorized_key": "ssh-ed25519 AAAA... comment", "openssh": "openssh.zip",
     "release": "2022", "storage": "virtio", "surface": "core"}

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
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from lab._errors import PreflightError
from lab.machines.images.terms import (
    PATTERN,
    RELEASES,
    SECRET,
    Firmware,
    Region,
    WantedImage,
)

if TYPE_CHECKING:
    from lab.inventory.inventory import Secret
    from lab.machines.images.terms import Storage
    from lab.windows.images.medium import Channel


SETTINGS = "settings.json"
CLONE = "clone.json"
OPENSSH = "openssh.zip"
"""Name of Win32-OpenSSH's release archive on the answer medium."""


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
    region: Region = field(default_factory=Region)
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
    region: Region = field(default_factory=Region)


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


Suffix = Literal["AdministratorPassword", "Password"]
"""Name of the element that contains it: Windows appends it to the password before encoding both.
The latter is for local accounts and automatic logons.
"""
MASK = "********"
_VALUE = re.compile(r"(<(?:\w*Password)\b[^>]*>\s*<Value>)[^<]*(?=</Value>)")
_KEY = re.compile(r"\b[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4}\b")


def encode_password(password: str, suffix: Suffix) -> str:
    """A password as in an answer file with ``PlainText`` false: obfuscated, not encrypted."""
    return base64.b64encode(f"{password}{suffix}".encode("utf-16-le")).decode("ascii")


def mask(document: str) -> str:
    """An answer file to show, without passwords and without keys other than public ones."""
    public = {key for release in RELEASES.values() for key in release.keys.values()}
    hidden = _VALUE.sub(lambda match: match[1] + MASK, document)
    return _KEY.sub(lambda match: match[0] if match[0] in public else MASK, hidden)


HIDDEN = "-".join(["XXXXX"] * 5)
"""Shown in place of a key."""


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
    action = f"choosing the product key of {wanted.release.name}"
    if channel == "evaluation":
        if own is None:
            return None
        raise PreflightError(
            action,
            'evaluation media take none: Setup would say "No images are available"',
            'leave "key" out of the recipe, or use a medium of the volume licence',
        )
    if own is not None:
        return own
    if channel == "volume":
        return wanted.release.keys[wanted.edition]
    if channel == "retail":
        raise PreflightError(
            action,
            "retail media need one, and none is configured",
            f"configure it in the inventory: [secrets.{SECRET}] file = ...",
        )
    return None


_SECRET_MOST = 4096
"""Bytes of a file that are read: secrets are shorter."""


def read_secret(name: str, secret: Secret, action: str) -> str:
    """Read a secret, without surrounding white space.

    Raises PreflightError when the variable or file does not exist, cannot be read, or is empty.
    """
    hint = f"set it, or leave [secrets.{name}] out of the inventory"
    if secret.file is None:
        source = f"the environment variable {secret.environment} of [secrets.{name}]"
        value = os.environ.get(secret.environment or "")
        if value is None:
            raise PreflightError(action, f"{source} is not set", hint)
    else:
        source = f"'{secret.file}' of [secrets.{name}]"
        try:
            with secret.file.open("rb") as file:
                value = file.read(_SECRET_MOST).decode("utf-8", errors="replace")
        except OSError as error:
            raise PreflightError(action, f"{source}: {error.strerror}", hint) from error
    if not value.strip():
        raise PreflightError(action, f"{source} is empty", hint)
    return value.strip()
