"""The lab's secrets, created once, in files with mode 0600 in the lab's directory.

SSH keys; for a Windows machine its password and the pins of its own keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import BrokenError
from lab.machines.images.terms import random_password
from lab.machines.management import DEVICE, management_mac
from lab.machines.ssh.keys import KeyPair, make_key_pair
from lab.providers.provider import LabHandle
from lab.state.directory import make_private
from lab.state.files import read_private, write_private

if TYPE_CHECKING:
    from lab.machines.images.seed import Identity, SeedCard

_DIRECTORY = "secrets"
_CLIENT = "client"
_PINS = "pins"
"""Directory of the pins, which are not secret."""


@dataclass(frozen=True, slots=True)
class Pins:
    """The SSH host key and certificate that a Windows machine announced on its console."""

    key: str
    """Its SSH host key: ``ssh-ed25519 AAAA...``."""
    certificate: str
    """SHA-256 of its WinRM certificate, in hex."""


def client_file(lab: LabHandle) -> Path:
    """The file with the private key for every machine of the lab."""
    return lab.directory / _DIRECTORY / _CLIENT


def ensure(lab: LabHandle, machines: Iterable[str]) -> None:
    """Create the missing keys: one client key, and one host key per machine.

    Raises StateError when they cannot be written.
    """
    directory = lab.directory / _DIRECTORY
    make_private(directory)
    for name in (_CLIENT, *(f"host-{machine}" for machine in machines)):
        if (directory / f"{name}.pub").exists():
            continue
        pair = make_key_pair(f"{lab.name} {name}")
        write_private(directory / name, pair.private)
        write_private(directory / f"{name}.pub", pair.public)


def client_public(lab: LabHandle) -> str:
    """The public client key: ``ssh-ed25519 AAAA... comment``."""
    return _read(lab, f"{_CLIENT}.pub").strip()


def host_key(lab: LabHandle, machine: str) -> KeyPair:
    """The machine's SSH host key."""
    return KeyPair(_read(lab, f"host-{machine}"), _read(lab, f"host-{machine}.pub").strip())


def seed_identity(  # noqa: PLR0913  all of them define a seed
    lab: LabHandle,
    machine: str,
    instance: str,
    management: IPv4Interface,
    *,
    user: str = "root",
    mtu: int | None = None,
    cards: Iterable[SeedCard] = (),
) -> Identity:
    """The contents of a Linux machine's seed; ``management``: its address on that network."""
    from lab.machines.images.seed import Identity, SeedCard  # noqa: PLC0415  an extra

    key = host_key(lab, machine)
    first = SeedCard(DEVICE, management_mac(lab, machine), management, mtu=mtu)
    return Identity(
        instance=instance,
        hostname=machine,
        user=user,
        authorized_key=client_public(lab),
        host_key=key.private,
        host_key_public=key.public,
        nics=(first, *cards),
    )


def ensure_passwords(lab: LabHandle, machines: Iterable[str]) -> None:
    """Create the missing passwords of Windows machines.

    Raises StateError when they cannot be written.
    """
    make_private(lab.directory / _DIRECTORY)
    for machine in machines:
        path = _password_file(lab, machine)
        if not path.exists():
            write_private(path, f"{random_password()}\n")


def password(lab: LabHandle, machine: str) -> str:
    """The administrator's password on a Windows machine."""
    return _read(lab, _password_file(lab, machine).name).strip()


def pin(lab: LabHandle, machine: str, pins: Pins) -> None:
    """Store a Windows machine's pins; connections must match them from now on."""
    make_private(lab.directory / _PINS)
    write_private(_pins_file(lab, machine), f"{pins.key}\n{pins.certificate}\n")


def pins(lab: LabHandle, machine: str) -> Pins | None:
    """A Windows machine's pins; None until it has announced them."""
    try:
        key, certificate = read_private(_pins_file(lab, machine)).decode("ascii").splitlines()
    except (OSError, ValueError):
        return None
    return Pins(key, certificate)


def unpin(lab: LabHandle, machine: str) -> None:
    """Delete the pins of a machine that is rebuilt."""
    _pins_file(lab, machine).unlink(missing_ok=True)


def _password_file(lab: LabHandle, machine: str) -> Path:
    return lab.directory / _DIRECTORY / f"password-{machine}"


def _pins_file(lab: LabHandle, machine: str) -> Path:
    return lab.directory / _PINS / machine


def _read(lab: LabHandle, name: str) -> str:
    path = lab.directory / _DIRECTORY / name
    try:
        return read_private(path).decode()
    except OSError as error:
        raise BrokenError(
            f"reading the keys of lab '{lab.name}'",
            f"'{path}': {error.strerror}",
            f"'lab down {lab.name}', then 'lab up' again: new machines get new keys",
        ) from error
