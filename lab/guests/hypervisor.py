"""A shell on a hypervisor, found from its libvirt URI as libvirt itself reads it."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lab._errors import UsageError
from lab.guests.door import jump_door
from lab.guests.known_hosts import SSH_PORT
from lab.guests.local import LocalShell
from lab.guests.shell import GuestShell, Jump
from lab.guests.ssh import SshShell
from lab.inventory.inventory import Hypervisor
from lab.inventory.uri import Uri, parse

_SSH = "qemu+ssh"
_ON = "1"
SSH_CONFIG = "~/.ssh/config"


def jump_of(uri: Uri, configured: Mapping[str, str]) -> Jump:
    """The SSH host of a ``qemu+ssh`` URI.

    ``keyfile`` and ``no_verify`` mean what they mean to libvirt; ``no_tty`` is always so.

    Parameters
    ----------
    uri
        The hypervisor's.
    configured
        What the user's ssh configuration says of that host: ``hostname``, ``port``, ``user``,
        ``identityfile``.

    """
    keyfile = uri.parameter("keyfile") or configured.get("identityfile")
    known_hosts = configured.get("userknownhostsfile")
    return Jump(
        host=configured.get("hostname", uri.host or ""),
        port=uri.port or int(configured.get("port", SSH_PORT)),
        user=uri.user or configured.get("user") or getpass.getuser(),
        keyfile=_path(keyfile) if keyfile else None,
        known_hosts=_path(known_hosts) if known_hosts else None,
        no_verify=uri.parameter("no_verify") == _ON,
    )


def jump_to(hypervisor: Hypervisor) -> Jump | None:
    """How guests behind a hypervisor's NAT are reached; None where it is this machine.

    Raises
    ------
    UsageError
        When its URI is none, or gives no way to a shell.

    """
    uri = parse(hypervisor.uri)
    if uri.host is None:
        return None
    doing = f"getting a shell on hypervisor '{hypervisor.name}'"
    if uri.scheme != _SSH:
        raise UsageError(
            doing,
            f"'{hypervisor.uri}' reaches its libvirt by {uri.scheme}, which carries no shell: "
            "tunnels between hypervisors and jumps to guests need one",
            f"use qemu+ssh://root@{uri.host}/system in the inventory",
        )
    configured = _configured(uri.host)
    hop = next((key for key in ("proxyjump", "proxycommand") if _set(configured.get(key))), None)
    if hop:
        raise UsageError(
            doing,
            f"{SSH_CONFIG} has '{hop}' for host '{uri.host}', which is not followed here",
            "give the inventory an address that this machine reaches directly",
        )
    return jump_of(uri, configured)


def shell_of(hypervisor: Hypervisor) -> GuestShell:
    """A shell on the hypervisor, acting as root; nothing is connected yet.

    Raises
    ------
    UsageError
        As :func:`jump_to` does.

    """
    jump = jump_to(hypervisor)
    if jump is None:
        return LocalShell()
    return SshShell((replace(jump_door(jump), name=hypervisor.name),))


def _configured(host: str) -> dict[str, str]:
    path = Path(os.path.expanduser(SSH_CONFIG))  # noqa: PTH111  a home that is not set leaves the text as it is
    if not path.is_file():
        return {}
    from paramiko import SSHConfig  # noqa: PLC0415  slow to import

    found = SSHConfig.from_path(str(path)).lookup(host)
    return {key: value if isinstance(value, str) else value[0] for key, value in found.items()}


def _set(value: str | None) -> bool:
    return value is not None and value.lower() != "none"


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # noqa: PTH111  a home that is not set leaves the text as it is
