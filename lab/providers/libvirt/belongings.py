"""What of a lab stands on hypervisors, found by its marks; and taken away."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from lab._errors import BrokenError, LabError, PreflightError
from lab._log import say
from lab.providers.libvirt import connection
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle, Mark


def marks(hosts: Iterable[Host], *, all_users: bool = False) -> tuple[Mark, ...]:
    """Every object of this controller's; with ``all_users`` also of others' expired labs."""
    found: list[Mark] = []
    now, ours = time.time(), controller_id()
    for host in hosts:
        if host.hypervisor.line == 0 and not connection.is_here(host.hypervisor):
            continue
        try:
            with host.told("looking for labs"):
                owners = list(host.owners())
        except LabError as error:
            nobody_asked = host.hypervisor.line == 0
            if nobody_asked and connection.is_forbidden(error.happened, host.hypervisor):
                continue  # who may not use libvirt has nothing there
            say(f"note: {error.doing}: {error.happened}; what is there is not seen")
            continue
        for what, owner in owners:
            expired = owner.expires is not None and owner.expires < now
            whose = "" if owner.controller == ours else owner.name()
            if not whose or (all_users and expired):
                age = max(0.0, now - owner.created)
                found.append(
                    Mark(owner.lab, owner.token, owner.directory, what, age, whose, expired)
                )
    return tuple(found)


def destroy(
    lab: LabHandle, decided: LibvirtLayout | None, hosts: Mapping[str, Host], owner: str = ""
) -> tuple[str, ...]:
    """Take away every object of the owner's with the lab's token; say what was removed.

    Without ``owner`` those of this controller's, also where it had another name when it made
    them: then they have the lab's own directory. Safe to repeat.

    Raises
    ------
    BrokenError
        When a hypervisor cannot be reached or refuses; the others are done first.

    """
    ours = controller_id()

    def is_whose(found: Owner) -> bool:
        if owner:
            return found.controller != ours and found.name() == owner
        return found.controller == ours or found.directory == lab.directory

    removed: list[str] = []
    failed: list[str] = []
    for name, host in hosts.items():
        try:
            with host.told(f"taking lab '{lab.name}' down"):
                removed += host.destroy(lab.token, is_whose, tunnels=len(hosts) > 1)
        except LabError as error:
            if isinstance(error, PreflightError) and decided and name not in decided.hypervisors():
                say(f"note: {error.doing}: {error.happened}; the lab has nothing there")
                continue
            failed.append(_left_there(name, decided, error))
    if failed:
        for what in removed:
            say(f"removed {what}")
        raise BrokenError(
            f"taking lab '{lab.name}' down",
            "\n  ".join(failed),
            f"'lab down {lab.name}' again, when that is mended",
        )
    return tuple(removed)


def _left_there(name: str, decided: LibvirtLayout | None, error: LabError) -> str:
    """What of a lab is left on a hypervisor, and why."""
    machines = decided.on(name) if decided else ()
    what = f"the networks, disks and machines of it ({', '.join(machines)})" if machines else "all"
    return f"{what} that may be on hypervisor '{name}' is left: {error}"
