"""All that an answer file says, decided: frozen data. What is secret is marked so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lab.imaging.windows.release import Wanted

Firmware = Literal["bios", "uefi"]
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

    wanted: Wanted
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
