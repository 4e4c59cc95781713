"""Find and remove a lab's objects on hypervisors by their ownership marks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab._log import say
from lab.machines.libvirt import connection, domains, networks, storage
from lab.machines.libvirt.connection import controller_id
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.ownership import Owner
from lab.providers.provider import LabHandle, Mark

if TYPE_CHECKING:
    from lab.machines.libvirt.placement import LibvirtLayout

_TUNNEL_SECONDS = 60.0
"""For a shell on the hypervisor and three commands."""


def find_owned(host: Host) -> Iterator[tuple[str, Owner]]:
    """Every object with an ownership mark on a hypervisor: description and owner."""
    for domain, owner in connection.owned(host.connected.listAllDomains()):
        yield f"domain '{domain.name()}' on '{host.name}'", owner
    for network, owner in connection.owned(host.connected.listAllNetworks()):
        yield f"network '{network.name()}' on '{host.name}'", owner


def remove_lab(
    host: Host,
    token: str,
    is_whose: Callable[[Owner], bool] = lambda _: True,
    *,
    tunnels: bool = False,
) -> tuple[str, ...]:
    """Remove the objects of the lab with that token from a hypervisor; returns descriptions.

    With ``tunnels``, also removes its tunnel ends, which needs a shell there.

    Domains go first and networks, which carry the mark of the whole lab, last: so after an
    interruption the rest can still be found. Objects for which ``is_whose`` returns False stay, and
    with them the storage pool and tunnel ends, which may belong to their lab. Raises libvirtError
    if libvirt refuses.
    """
    connected = host.connected
    removed: list[str] = []
    alone = all(is_whose(owner) for _, owner in find_owned(host) if owner.token == token)
    for domain, owner in list(connection.owned(connected.listAllDomains())):
        if owner.token == token and is_whose(owner):
            removed.append(f"domain '{domain.name()}' on '{host.name}'")
            domains.remove(domain)
    pool = host.lab_pool(token)
    if pool is not None and not alone:
        say(
            f"note: pool '{pool.name()}' on '{host.name}' stays: other objects have its lab's token"
        )
    elif pool is not None:
        removed.append(f"storage pool '{pool.name()}' on '{host.name}'")
        storage.remove_pool(pool)
    if tunnels and alone:
        removed += [f"tunnel end '{device}' on '{host.name}'" for device in _tunnels(host, token)]
    for network, owner in list(connection.owned(connected.listAllNetworks())):
        if owner.token == token and is_whose(owner):
            removed.append(f"network '{network.name()}' on '{host.name}'")
            networks.remove(network)
    return tuple(removed)


def _tunnels(host: Host, token: str) -> tuple[str, ...]:
    from lab.machines.libvirt.vxlan_underlay import VxlanDevices  # noqa: PLC0415  'lab list' does not need it

    try:
        shell = host.shell
    except UsageError:  # without a shell there cannot be any
        return ()
    return VxlanDevices(shell, Deadline(_TUNNEL_SECONDS)).remove(token)


def marks(hosts: Iterable[Host], *, all_users: bool = False) -> tuple[Mark, ...]:
    """The controller's objects; with ``all_users`` also those of others' expired labs."""
    marks_found: list[Mark] = []
    now, own = time.time(), controller_id()
    for host in hosts:
        unlisted = host.hypervisor.line == 0
        if unlisted and not connection.is_here(host.hypervisor):
            continue
        try:
            with host.explain_errors("looking for labs"):
                owners = list(find_owned(host))
        except LabError as error:
            if unlisted and isinstance(error, connection.ForbiddenError):
                continue  # a user without access to libvirt has no labs there
            say(f"note: {error.doing}: {error.happened}; labs there are not listed")
            continue
        for title, owner in owners:
            expired = owner.expires is not None and owner.expires < now
            whose = "" if owner.controller == own else owner.name()
            if not whose or (all_users and expired):
                age = max(0.0, now - owner.created)
                marks_found.append(
                    Mark(owner.lab, owner.token, owner.directory, title, age, whose, expired)
                )
    return tuple(marks_found)


def destroy(
    lab: LabHandle, layout: LibvirtLayout | None, hosts: Mapping[str, Host], owner: str = ""
) -> tuple[str, ...]:
    """Remove the owner's objects with the lab's token; returns descriptions.

    Without ``owner``, removes those of this controller, even if it had another name when it created
    them: then they have the lab's directory. Safe to repeat. Raises BrokenError if a hypervisor is
    unreachable or refuses, after all others are done.
    """
    own = controller_id()

    def is_whose(mark: Owner) -> bool:
        if owner:
            return mark.controller != own and mark.name() == owner
        return mark.controller == own or mark.directory == lab.directory

    removed: list[str] = []
    failed: list[str] = []
    for name, host in hosts.items():
        try:
            with host.explain_errors(f"taking lab '{lab.name}' down"):
                removed += remove_lab(host, lab.token, is_whose, tunnels=len(hosts) > 1)
        except LabError as error:
            if isinstance(error, PreflightError) and layout and name not in layout.hypervisors():
                say(f"note: {error.doing}: {error.happened}; the lab has nothing there")
                continue
            machines = layout.on(name) if layout else ()
            title = (
                f"its networks, disks and machines ({', '.join(machines)})" if machines else "all"
            )
            failed.append(f"{title} that may be on hypervisor '{name}' remain there: {error}")
    if failed:
        for line in removed:
            say(f"removed {line}")
        raise BrokenError(
            f"taking lab '{lab.name}' down",
            "\n  ".join(failed),
            f"run 'lab down {lab.name}' again when that is fixed",
        )
    return tuple(removed)
