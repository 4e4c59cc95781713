"""Find labs on hypervisors, without importing libvirt if there cannot be any."""

from __future__ import annotations

from lab.machines.libvirt.presence import is_installed
from lab.providers.provider import Mark
from lab.providers.setup import ProviderSetup


def find(setup: ProviderSetup, *, all_users: bool) -> tuple[Mark, ...]:
    """The controller's objects; with ``all_users`` also those of others' expired labs."""
    if setup.inventory() is None and not is_installed():
        return ()
    from lab.machines.libvirt import owned  # noqa: PLC0415  few machines have hypervisors
    from lab.machines.libvirt.host import Host  # noqa: PLC0415  the same

    hosts = [Host(hypervisor) for hypervisor in setup.machines().hypervisors.values()]
    return owned.marks(hosts, all_users=all_users)
