"""What hypervisors have left for labs, and where a lab's machines go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from lab._errors import PreflightError
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection, domains, layout, volumes
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import LibvirtLayout
from lab.providers.libvirt.placement import Capacity, place
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

_OWN_EIGHTH = 8
"""Of its memory, a hypervisor keeps an eighth for itself, unless the inventory says."""
_VCPUS_A_THREAD = 8
"""Labs wait more than they compute; OpenStack's Nova gave 16 by default for years."""
_THIN = 4
"""Clones hold what was written to them alone: disks may add up to this many times the room."""
GIB = 1 << 30
_MIB = 1 << 20
_UNKNOWN_GIB = 1 << 20


def decide(lab: LabHandle, intent: Intent, hosts: Mapping[str, Host]) -> LibvirtLayout:
    """Where every machine goes; what is there already stays where it is.

    Raises
    ------
    PreflightError
        When a hypervisor cannot be reached, a stranger has a name of ours, or it does not fit.

    """
    before = layout.load(lab)
    kept = dict(before.machines) if before else {}
    room = tuple(_capacity(host, lab) for host in hosts.values())
    machines = place(intent.machines, room, kept)
    _refuse_strangers(lab, machines, hosts)
    _require_networks(intent, machines, hosts)
    used = dict.fromkeys(machines.values())
    known = before.accelerated if before else {}
    accelerated = {name: known[name] if name in known else hosts[name].accelerated for name in used}
    homes = {name: hosts[name].hypervisor for name in used}
    windows = tuple(machine.name for machine in intent.machines if machine.os == "windows")
    return LibvirtLayout(machines, accelerated, homes, before.users if before else {}, windows)


def labs_at_once(
    hypervisors: Sequence[Hypervisor], lab_mib: int, own_mib: int | None = None
) -> int:
    """How many labs of that size fit at once; at least one. No hypervisor is asked.

    Parameters
    ----------
    own_mib
        MiB that this machine has; None for what the kernel says.

    """
    own = own_mib or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    there = sum(_expected_memory(one, own, lab_mib) for one in hypervisors)
    return max(1, there // lab_mib)


def _expected_memory(hypervisor: Hypervisor, own_mib: int, lab_mib: int) -> int:
    """MiB it may give; room for one lab where that is not written and cannot be seen from here."""
    if hypervisor.memory_mib is not None:
        return hypervisor.memory_mib
    if urlsplit(hypervisor.uri).hostname is not None:
        return lab_mib
    return own_mib - own_mib // _OWN_EIGHTH


def _refuse_strangers(
    lab: LabHandle, machines: Mapping[str, str], hosts: Mapping[str, Host]
) -> None:
    for machine, where in machines.items():
        with hosts[where].told(f"looking for machine '{machine}'"):
            domains.find(hosts[where].connected, lab, machine)


def _require_networks(
    intent: Intent, machines: Mapping[str, str], hosts: Mapping[str, Host]
) -> None:
    """See that the networks of the hypervisor, to which the scenario adds cards, are there."""
    for machine in intent.machines:
        host = hosts[machines[machine.name]]
        wanted = [nic.network for nic in machine.hardware.nics]
        if not wanted:
            continue
        with host.told(f"looking for the networks of machine '{machine.name}'"):
            listed = host.connected.listAllNetworks()
            running = connection.each(listed, lambda one: one.isActive())
            there = {one.name(): active for one, active in running}
        for network in wanted:
            if not there.get(network):
                raise _no_network(machine.name, network, host.name, there)


def _no_network(
    machine: str, network: str, host: str, there: Mapping[str, object]
) -> PreflightError:
    running = ", ".join(f"'{name}'" for name, active in there.items() if active) or "none"
    return PreflightError(
        f"looking for network '{network}', which machine '{machine}' has a card on",
        f"it is not running on hypervisor '{host}'"
        if network in there
        else f"hypervisor '{host}' has none of that name",
        f"'virsh net-start {network}' there"
        if network in there
        else f"define it there ('virsh net-define'), or name one of those that run: {running}",
    )


def _capacity(host: Host, lab: LabHandle) -> Capacity:
    """What is left there for this lab: the limits less what all other labs of ours have."""
    given = host.hypervisor
    with host.told("asking how much room there is"):
        memory = host.memory_mib
        others = [
            domain for domain, owner in domains.owned(host.connected) if owner.token != lab.token
        ]
        sizes = [size for _, size in connection.each(others, domains.size)]
        disk = _disk_gib(host)
    taken_vcpus, taken_memory = (sum(taken) for taken in zip(*sizes, (0, 0), strict=True))
    limit = given.memory_mib or memory - memory // _OWN_EIGHTH
    vcpus = given.vcpus or _VCPUS_A_THREAD * host.threads
    return Capacity(
        name=host.name,
        tags=given.tags,
        vcpus=max(0, vcpus - taken_vcpus),
        memory_mib=max(0, limit - taken_memory),
        disk_gib=disk,
    )


def _disk_gib(host: Host) -> int:
    """Room for clones: the limit, or what the storage has free, as thin as clones are.

    Where that cannot be known without making something, it is known when images are copied.
    """
    if host.hypervisor.disk_gib is not None:
        return host.hypervisor.disk_gib
    free = _free_bytes(host)
    return _UNKNOWN_GIB if free is None else _THIN * free // GIB


def _free_bytes(host: Host) -> int | None:
    storage = host.hypervisor.storage
    pools = host.connected.listAllStoragePools()
    for _, (path, active, info) in connection.each(
        pools, lambda one: (volumes.path_of(one), one.isActive(), one.info())
    ):
        if active and path.startswith(storage):
            return int(info[3])
    if host.hypervisor.uri == "qemu:///system" and Path(storage).is_dir():
        found = os.statvfs(storage)
        return found.f_bavail * found.f_frsize
    return None
