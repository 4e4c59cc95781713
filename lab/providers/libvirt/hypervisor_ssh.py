"""A shell on a hypervisor, found from its libvirt URI as libvirt itself reads it."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import replace

from lab._errors import UsageError
from lab.inventory.inventory import Hypervisor
from lab.inventory.uri import Uri, parse
from lab.remote.keys import SSH_PORT
from lab.remote.local import LocalShell
from lab.remote.shell import Jump, Shell
from lab.remote.ssh import SshShell
from lab.remote.transport import jump_server, ssh_path

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
        keyfile=ssh_path(keyfile) if keyfile else None,
        known_hosts=ssh_path(known_hosts) if known_hosts else None,
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


def shell_of(hypervisor: Hypervisor) -> Shell:
    """A shell on the hypervisor, acting as root; nothing is connected yet.

    Raises
    ------
    UsageError
        As :func:`jump_to` does.

    """
    jump = jump_to(hypervisor)
    if jump is None:
        return LocalShell()
    return SshShell((replace(jump_server(jump), name=hypervisor.name),))


def _configured(host: str) -> dict[str, str]:
    path = ssh_path(SSH_CONFIG)
    if not path.is_file():
        return {}
    from paramiko import SSHConfig  # noqa: PLC0415  slow to import

    text = path.read_text(encoding="utf-8", errors="replace")
    for sign in ("~/", "%d/"):  # which paramiko would take from HOME
        text = text.replace(sign, f"{ssh_path('~/')}/")
    found = SSHConfig.from_text(text).lookup(host)
    return {key: value if isinstance(value, str) else value[0] for key, value in found.items()}


def _set(value: str | None) -> bool:
    return value is not None and value.lower() != "none"
