"""What the scripts on an answer medium are told: two JSON documents, and no secret in them.

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

What is not known is ``null``; no key is ever left out.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lab.imaging.windows.release import Surface, Year
from lab.imaging.windows.settings import CloneSettings, Storage

SETTINGS = "settings.json"
CLONE = "clone.json"
OPENSSH = "openssh.zip"
"""Name on the answer medium of Win32-OpenSSH's release archive."""


@dataclass(frozen=True, slots=True)
class BootstrapSettings:
    """Parameters of ``bootstrap.ps1``."""

    release: Year
    storage: Storage
    surface: Surface
    authorized_key: str
    """Who may log in over SSH: ``ssh-ed25519 AAAA... comment``."""
    virtio: bool
    """Whether the virtio-win medium is there, whose guest tools are to be installed."""
    openssh: str | None
    """Name of the archive on the answer medium; None to ask Windows for its own OpenSSH."""


def settings_document(settings: BootstrapSettings) -> bytes:
    """``settings.json``; the same settings give the same bytes."""
    return _json(asdict(settings))


def clone_document(settings: CloneSettings) -> bytes:
    """``clone.json``: all of a clone's settings but its password."""
    told = asdict(settings)
    del told["administrator_password"]
    return _json(told)


def _json(value: dict[str, object]) -> bytes:
    """ASCII, so that Windows PowerShell reads it right whatever encoding it takes it for."""
    return json.dumps(value, indent=1, sort_keys=True).encode("ascii") + b"\n"
