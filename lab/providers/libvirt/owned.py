"""A lab's objects on hypervisors, found by their marks, and removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab._log import say
from lab.providers.libvirt import connection, domains, networks, storage
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle, Mark

if TYPE_CHECKING:
    from lab.providers.libvirt.placement import LibvirtLayout

_TUNNEL_SECONDS = 60.0
"""For a shell on the hypervisor and three commands."""


def find_owned(host: Host) -> Iterator[tuple[str, Owner]]:
    """Every object on a hypervisor that carries a mark, in words, and whose it is."""
    for domain, owner in domains.owned(host.connected):
        yield f"domain '{domain.name()}' on '{host.name}'", owner
    for network, owner in networks.owned(host.connected):
        yield f"network '{network.name()}' on '{host.name}'", owner


def remove_lab(
    host: Host,
    token: str,
    is_whose: Callable[[Owner], bool] = lambda _: True,
    *,
    tunnels: bool = False,
) -> tuple[str, ...]:
    """Remove every object of the lab with that token from a hypervisor; what was removed, in words.

    With ``tunnels``, those to other hypervisors too, which takes a shell there.

    Domains go first and networks, which carry the mark of the whole lab, last: whatever stops
    this half-way, the rest is found again. An object that ``is_whose`` refuses stays, and with it
    the storage pool and tunnel ends, which may be its lab's. Raises libvirtError if libvirt
    refuses.
    """
    connected = host.connected
    removed: list[str] = []
    alone = all(is_whose(owner) for _, owner in find_owned(host) if owner.token == token)
    for domain, owner in list(domains.owned(connected)):
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
    for network, owner in list(networks.owned(connected)):
        if owner.token == token and is_whose(owner):
            removed.append(f"network '{network.name()}' on '{host.name}'")
            networks.remove(network)
    return tuple(removed)


def _tunnels(host: Host, token: str) -> tuple[str, ...]:
    from lab.providers.libvirt.vxlan_underlay import VxlanDevices  # noqa: PLC0415  'lab list' removes none

    try:
        shell = host.shell
    except UsageError:  # without a shell there, none was ever made
        return ()
    return VxlanDevices(shell, Deadline(_TUNNEL_SECONDS)).remove(token)


def marks(hosts: Iterable[Host], *, all_users: bool = False) -> tuple[Mark, ...]:
    """Every object of this controller's; with ``all_users`` also of others' expired labs."""
    found: list[Mark] = []
    now, this = time.time(), controller_id()
    for host in hosts:
        unlisted = host.hypervisor.line == 0
        if unlisted and not connection.is_here(host.hypervisor):
            continue
        try:
            with host.explain_errors("looking for labs"):
                owners = list(find_owned(host))
        except LabError as error:
            if unlisted and connection.is_forbidden(error.happened, host.hypervisor):
                continue  # who may not use libvirt has nothing there
            say(f"note: {error.doing}: {error.happened}; labs there are not seen")
            continue
        for what, owner in owners:
            expired = owner.expires is not None and owner.expires < now
            whose = "" if owner.controller == this else owner.name()
            if not whose or (all_users and expired):
                age = max(0.0, now - owner.created)
                found.append(
                    Mark(owner.lab, owner.token, owner.directory, what, age, whose, expired)
                )
    return tuple(found)


def destroy(
    lab: LabHandle, layout: LibvirtLayout | None, hosts: Mapping[str, Host], owner: str = ""
) -> tuple[str, ...]:
    """Remove every object of the owner's with the lab's token; what was removed, in words.

    Without ``owner`` those of this controller's, also where it had another name when it made
    them: then they have the lab's own directory. Safe to repeat. Raises BrokenError if a
    hypervisor cannot be reached or refuses; the others are done first.
    """
    this = controller_id()

    def is_whose(found: Owner) -> bool:
        if owner:
            return found.controller != this and found.name() == owner
        return found.controller == this or found.directory == lab.directory

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
            what = (
                f"its networks, disks and machines ({', '.join(machines)})" if machines else "all"
            )
            failed.append(f"{what} that may be on hypervisor '{name}' remain there: {error}")
    if failed:
        for what in removed:
            say(f"removed {what}")
        raise BrokenError(
            f"taking lab '{lab.name}' down",
            "\n  ".join(failed),
            f"run 'lab down {lab.name}' again when that is fixed",
        )
    return tuple(removed)
