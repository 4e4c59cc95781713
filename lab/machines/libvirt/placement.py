"""Place machines on hypervisors: free capacity, the choice, its record, and the lab's cost.

Nodes are spread: each goes to the hypervisor with the fewest nodes of its operating system, then
the fewest nodes, then the smallest share of free resources taken, then in the inventory's order. So
every pair of operating systems has cells within a hypervisor and between hypervisors. Router and
client are placed together, so that the network outside needs no tunnel.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter

from lab._errors import PreflightError, UsageError
from lab._log import quantity
from lab.inventory.inventory import Hypervisor, Inventory
from lab.inventory.uri import check
from lab.machines.libvirt import connection, domains, storage
from lab.machines.libvirt.host import Host
from lab.plan.canonical import plain
from lab.providers.provider import LabHandle
from lab.state.files import read_private, write_private
from lab.topology.cost import Cost
from lab.topology.intent import Hardware, Intent, MachineIntent

LAYOUT_FILE = "layout.json"
_FROM_INVENTORY = ("command", "netcat", "no_verify")
"""URI parameters accepted only from the inventory: programs that libvirt runs, here or on the
hypervisor, and the omission of the host key check."""


@dataclass(frozen=True, slots=True)
class LibvirtLayout:
    """The hypervisors of a lab's machines."""

    machines: Mapping[str, str]
    accelerated: Mapping[str, bool]
    """By hypervisor: True if guests really run on KVM there."""
    homes: Mapping[str, Hypervisor]
    """The hypervisors, copied from the inventory, so that a lab can be found without it.

    URIs are stored without the parameters in :data:`_FROM_INVENTORY`: if one is needed, taking the
    lab down requires the hypervisor in the inventory.
    """
    users: Mapping[str, str] = field(default_factory=dict)
    """Login user by machine; empty until its image is known."""
    windows: tuple[str, ...] = ()
    bundle: str = ""
    """Digest of its cluster's bundle; empty if pods are namespaces."""

    def hypervisors(self) -> tuple[str, ...]:
        """The hypervisors with machines, in order."""
        return tuple(dict.fromkeys(self.machines.values()))

    def on(self, hypervisor: str) -> tuple[str, ...]:
        """The machines of one hypervisor, in order."""
        return tuple(name for name, where in self.machines.items() if where == hypervisor)


_READER = TypeAdapter(LibvirtLayout)


def load_layout(lab: LabHandle) -> LibvirtLayout | None:
    """The lab's layout; None if it is not decided yet or cannot be read."""
    try:
        layout = _READER.validate_json(read_private(lab.directory / LAYOUT_FILE))
        homes = {
            name: hypervisor.replace(uri=check(_without_local_parameters(hypervisor.uri)))
            for name, hypervisor in layout.homes.items()
        }
    except (OSError, ValueError):  # pydantic's errors are ValueErrors
        return None
    return replace(layout, homes=homes)


def save_layout(lab: LabHandle, layout: LibvirtLayout) -> None:
    """Store the layout; call before creating machines."""
    homes = {
        name: hypervisor.replace(uri=_without_local_parameters(hypervisor.uri))
        for name, hypervisor in layout.homes.items()
    }
    content = json.dumps(plain(replace(layout, homes=homes)), indent=1)
    write_private(lab.directory / LAYOUT_FILE, content + "\n")


def _without_local_parameters(uri: str) -> str:
    place, _, query = uri.partition("?")
    written = re.split("[&;]", query)  # libvirt accepts both separators, and names in any case
    kept = [
        parameter
        for parameter in written
        if unquote(parameter.partition("=")[0]).lower() not in _FROM_INVENTORY
    ]
    return "?".join(filter(None, (place, "&".join(kept))))


CARRIER_OVERHEAD = 50
"""Bytes that VXLAN over IPv4 adds to a packet: inner Ethernet 14, VXLAN 8, UDP 8, IPv4 20
(RFC 7348, section 5)."""
MINIMUM_MTU = 576 + CARRIER_OVERHEAD
"""Every IPv4 host, pods included, must accept packets of 576 bytes (RFC 791, section 3.1); a lab's
own overlay takes another 50."""
_TRIES = 10_000
"""Placements to try before giving up. A lab that fits takes one try per machine, unless space is
very tight."""
_DOING = "placing the machines on hypervisors"


@dataclass(frozen=True, slots=True)
class Capacity:
    """Resources of one hypervisor available to the lab, not counting the lab's own machines."""

    name: str
    tags: frozenset[str]
    vcpus: int
    memory_mib: int
    disk_gib: int


class _FreeRoom:
    """Free resources of the hypervisors while machines are tentatively placed."""

    def __init__(self, hosts: Sequence[Capacity]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.placed: dict[str, list[MachineIntent]] = {host.name: [] for host in hosts}

    def sum_needs(self, host: str) -> tuple[int, ...]:
        needs = [_amounts(machine.hardware) for machine in self.placed[host]]
        return tuple(map(sum, zip(*needs, (0, 0, 0), strict=True)))

    def free(self, host: str) -> tuple[int, ...]:
        limits = _amounts(self.hosts[host])
        return tuple(limit - used for limit, used in zip(limits, self.sum_needs(host), strict=True))

    def fits(self, machine: MachineIntent, host: str) -> bool:
        return all(
            need <= free
            for need, free in zip(_amounts(machine.hardware), self.free(host), strict=True)
        )

    def preferred(self, machine: MachineIntent, hosts: Sequence[str]) -> list[str]:
        """The hypervisors in order of preference for the machine."""
        return sorted(hosts, key=lambda host: self._crowd(machine, host))

    def _crowd(self, machine: MachineIntent, host: str) -> tuple[object, ...]:
        machines = self.placed[host]
        if machine.kind == "node":
            nodes = [neighbour for neighbour in machines if neighbour.kind == "node"]
            crowd = (sum(node.os == machine.os for node in nodes), len(nodes))
        else:
            apart = not any(neighbour.kind in {"router", "client"} for neighbour in machines)
            crowd = (int(apart), len(machines))
        parts = zip(_amounts(machine.hardware), self.free(host), strict=True)
        return (*crowd, max(need / max(free, 1) for need, free in parts))


def place(
    machines: Sequence[MachineIntent], hosts: Sequence[Capacity], kept: Mapping[str, str]
) -> Mapping[str, str]:
    """Choose each machine's hypervisor; results in the order of ``machines``.

    ``kept``: current placement. Machines stay there unless the hypervisor is no longer in ``hosts``
    or the scenario now asks for another.

    Raises UsageError when the scenario asks for a hypervisor or tag that the inventory lacks.
    Raises PreflightError when the lab does not fit, listing every machine without a place and the
    free resources, or when the scenario needs more hypervisors than there are.
    """
    allowed = {machine.name: _allowed_hosts(machine, hosts) for machine in machines}
    room = _FreeRoom(hosts)
    placed: dict[str, str] = {}
    for machine in machines:
        host = kept.get(machine.name)
        if host is not None and host in allowed[machine.name]:
            room.placed[host].append(machine)
            placed[machine.name] = host
    _refuse_outgrown(placed, room)
    order = sorted(
        (machine for machine in machines if machine.name not in placed),
        key=lambda machine: _urgency(machine, len(allowed[machine.name])),
    )
    if not _search(order, allowed, room, placed, iter(range(_TRIES))):
        raise PreflightError(
            _DOING,
            "\n".join(_reasons(order, allowed, room)),
            "lower 'vcpus', 'memory' or 'disk' of the machines in the scenario, take other labs "
            "down, or raise the hypervisors' limits in the inventory",
        )
    return {machine.name: placed[machine.name] for machine in machines}


def fitting_mtu(inventory: Inventory, hosts: Sequence[str], wanted: int) -> int:
    """The end-to-end MTU of the node network in bytes, at most ``wanted``.

    One hypervisor imposes no limit. Between several, the limit is the smallest uplink MTU minus the
    tunnel's overhead.

    Raises PreflightError when it would be too small for a cluster.
    """
    used = [inventory.hypervisors[name] for name in dict.fromkeys(hosts)]
    if len(used) < 2:  # noqa: PLR2004  one hypervisor has no network between
        return wanted
    narrowest = min(used, key=lambda hypervisor: hypervisor.mtu)
    fits = min(wanted, narrowest.mtu - CARRIER_OVERHEAD)
    if fits < MINIMUM_MTU:
        raise PreflightError(
            "finding the MTU of the node network",
            f"hypervisor '{narrowest.name}' has an uplink of {narrowest.mtu} bytes; the tunnel "
            f"between hypervisors takes {CARRIER_OVERHEAD}, which leaves {fits}, and nodes with "
            f"an overlay of their own need {MINIMUM_MTU}",
            f"raise 'mtu' of '{narrowest.name}' in the inventory to what its network carries, "
            f"or keep the lab on one hypervisor",
        )
    return fits


def _amounts(capacity: Capacity | Hardware) -> tuple[int, ...]:
    return capacity.vcpus, capacity.memory_mib, capacity.disk_gib


def _describe(amounts: tuple[int, ...]) -> str:
    vcpus, memory, disk = amounts
    return f"{quantity(vcpus, 'vCPU')}, {memory:,} MiB of memory and {disk:,} GiB of disk"


def _allowed_hosts(machine: MachineIntent, hosts: Sequence[Capacity]) -> tuple[str, ...]:
    wanted = machine.hardware.hypervisor
    names = tuple(host.name for host in hosts)
    if machine.hardware.place is not None:
        return (_choose_by_number(machine, machine.hardware.place, names),)
    if wanted is None:
        return names
    if wanted in names:
        return (wanted,)
    tagged = tuple(host.name for host in hosts if wanted in host.tags)
    if not tagged:
        tags = sorted(set().union(*(host.tags for host in hosts)))
        raise UsageError(
            f"placing machine '{machine.name}'",
            f"the scenario places it on hypervisor '{wanted}', but the inventory has no such name "
            "or tag",
            f"one of the hypervisors {', '.join(names)}"
            + (f" or of the tags {', '.join(tags)}" if tags else ""),
        )
    return tagged


def _choose_by_number(machine: MachineIntent, place: int, names: tuple[str, ...]) -> str:
    if place > len(names):
        raise PreflightError(
            f"placing machine '{machine.name}'",
            f"the scenario places it on hypervisor number {place}, and the inventory has "
            f"{quantity(len(names), 'hypervisor')}: {', '.join(names)}",
            "add hypervisors to the inventory, or ask for fewer ('hypervisors.count', or the "
            "last number of a spec string)",
        )
    return names[place - 1]


def _urgency(machine: MachineIntent, choices: int) -> tuple[object, ...]:
    """Sort key: nodes before router and client, then fewest choices, then largest."""
    needs = _amounts(machine.hardware)
    return machine.kind != "node", choices, tuple(-need for need in needs[1:]), -needs[0]


def _search(
    order: Sequence[MachineIntent],
    allowed: Mapping[str, tuple[str, ...]],
    room: _FreeRoom,
    placed: dict[str, str],
    tries: Iterator[int],
) -> bool:
    """Place every machine on its preferred hypervisor, with backtracking.

    If it returns False, nothing was placed.
    """
    if not order:
        return True
    machine, rest = order[0], order[1:]
    for host in room.preferred(machine, allowed[machine.name]):
        if not room.fits(machine, host):
            continue
        if next(tries, None) is None:
            return False
        room.placed[host].append(machine)
        placed[machine.name] = host
        if _search(rest, allowed, room, placed, tries):
            return True
        room.placed[host].remove(machine)
        del placed[machine.name]
    return False


def _refuse_outgrown(placed: Mapping[str, str], room: _FreeRoom) -> None:
    lines = [
        f"'{host}' has {_describe(_amounts(room.hosts[host]))} for the lab, and "
        f"{', '.join(name for name, where in placed.items() if where == host)} there "
        f"ask for {_describe(room.sum_needs(host))}"
        for host in room.hosts
        if min(room.free(host)) < 0
    ]
    if lines:
        raise PreflightError(
            _DOING,
            "existing machines no longer fit:\n  " + "\n  ".join(lines),
            "raise the limits in the inventory, or 'lab down' first, to place all machines again",
        )


def _reasons(
    order: Sequence[MachineIntent], allowed: Mapping[str, tuple[str, ...]], room: _FreeRoom
) -> Iterator[str]:
    homeless = [
        machine
        for machine in order
        if not any(room.fits(machine, host) for host in allowed[machine.name])
    ]
    if homeless:
        yield f"no hypervisor has room for {quantity(len(homeless), 'machine')} of {len(order)}"
    else:
        yield "each machine would fit by itself, but not all together"
    for machine in homeless or order:
        wanted = machine.hardware.hypervisor
        where = f" on '{wanted}', as the scenario asks" if wanted else ""
        yield f"  '{machine.name}' asks for {_describe(_amounts(machine.hardware))}{where}"
    for host in room.hosts:
        yield f"  '{host}' has free: {_describe(room.free(host))}"


_VCPUS_A_THREAD = 8
"""Labs wait more than they compute; OpenStack Nova's default was 16 for years."""
_THIN = 4
"""Clones store only what was written to them: disk sizes may add up to this multiple of the free
space."""
GIB = 1 << 30
_MIB = 1 << 20
_UNKNOWN_GIB = 1 << 20


def share_for_labs(memory_mib: int) -> int:
    """MiB for labs if the inventory sets no limit: a hypervisor keeps an eighth for itself."""
    return memory_mib - memory_mib // 8


def decide_layout(lab: LabHandle, intent: Intent, hosts: Mapping[str, Host]) -> LibvirtLayout:
    """Place every machine; existing machines stay where they are.

    Raises PreflightError when a hypervisor is unreachable, a network is missing, or the lab does
    not fit. Raises BrokenError when a foreign object has one of the lab's names.
    """
    before = load_layout(lab)
    kept = dict(before.machines) if before else {}
    room = tuple(_capacity(host, lab) for host in hosts.values())
    machines = place(intent.machines, room, kept)
    for machine, where in machines.items():  # refuses foreign ones
        with hosts[where].explain_errors(f"looking for machine '{machine}'"):
            domains.find(hosts[where].connected, lab, machine)
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
    """How many labs of that size fit at once; at least one. Connects to no hypervisor.

    ``own_mib``: this machine's memory in MiB; None to ask the kernel.
    """
    own = own_mib or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    count = sum(_expected_memory(hypervisor, own, lab_mib) for hypervisor in hypervisors)
    return max(1, count // lab_mib)


def _expected_memory(hypervisor: Hypervisor, own_mib: int, lab_mib: int) -> int:
    """MiB available for labs; enough for one lab if a remote hypervisor sets no limit."""
    if hypervisor.memory_mib is not None:
        return hypervisor.memory_mib
    if urlsplit(hypervisor.uri).hostname is not None:
        return lab_mib
    return share_for_labs(own_mib)


def _require_networks(
    intent: Intent, machines: Mapping[str, str], hosts: Mapping[str, Host]
) -> None:
    """Check that the hypervisors' networks to which the scenario adds cards are running."""
    for machine in intent.machines:
        host = hosts[machines[machine.name]]
        wanted = [nic.network for nic in machine.hardware.nics]
        if not wanted:
            continue
        with host.explain_errors(f"looking for the networks of machine '{machine.name}'"):
            listed = host.connected.listAllNetworks()
            states = connection.each(listed, lambda defined: defined.isActive())
            active_networks = {defined.name(): active for defined, active in states}
        for network in wanted:
            if active_networks.get(network):
                continue
            running = (
                ", ".join(f"'{name}'" for name, active in active_networks.items() if active)
                or "none"
            )
            happened = f"hypervisor '{host.name}' has none of that name"
            hint = f"define it there ('virsh net-define'), or name one of those that run: {running}"
            if network in active_networks:
                happened = f"it is not running on hypervisor '{host.name}'"
                hint = f"'virsh net-start {network}' there"
            raise PreflightError(
                f"looking for network '{network}', which machine '{machine.name}' has a card on",
                happened,
                hint,
            )


def _capacity(host: Host, lab: LabHandle) -> Capacity:
    """Resources available to this lab: the limits minus what other labs use."""
    given = host.hypervisor
    with host.explain_errors("reading the free capacity"):
        memory = host.memory_mib
        marked = connection.owned(host.connected.listAllDomains())
        others = [domain for domain, owner in marked if owner.token != lab.token]
        sizes = [size for _, size in connection.each(others, domains.size)]
        disk = _disk_gib(host)
    taken_vcpus, taken_memory = (sum(taken) for taken in zip(*sizes, (0, 0), strict=True))
    limit = given.memory_mib or share_for_labs(memory)
    vcpus = given.vcpus or _VCPUS_A_THREAD * host.threads
    return Capacity(
        name=host.name,
        tags=given.tags,
        vcpus=max(0, vcpus - taken_vcpus),
        memory_mib=max(0, limit - taken_memory),
        disk_gib=disk,
    )


def _disk_gib(host: Host) -> int:
    """Disk space for clones in GiB: the limit, or the free space times ``_THIN``.

    If finding out would require creating something, the check is left to the copying of images.
    """
    if host.hypervisor.disk_gib is not None:
        return host.hypervisor.disk_gib
    free = _free_bytes(host)
    return _UNKNOWN_GIB if free is None else _THIN * free // GIB


def _free_bytes(host: Host) -> int | None:
    directory = host.hypervisor.storage
    pools = host.connected.listAllStoragePools()
    for _, (path, active, info) in connection.each(
        pools, lambda pool: (storage.directory_of(pool), pool.isActive(), pool.info())
    ):
        if active and path.startswith(directory):
            return int(info[3])
    if host.hypervisor.uri == "qemu:///system" and Path(directory).is_dir():
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize
    return None


BOOT_SECONDS = 12.0
"""From start to SSH, one guest per thread, under TCG on 2 cores; KVM takes a third."""
NETWORK_SECONDS = 6.0
"""Creating the network inside one guest for the first time, measured the same way."""
BUILD_SECONDS = 60.0
"""A Debian image from packages, measured the same way; an installer takes many times that."""
WINDOWS_BUILD_SECONDS = 4 * 3600.0
"""Windows Server from its medium. Not measured: no Windows ran where this was written."""
WINDOWS_BOOT_SECONDS = 900.0
"""From a generalised image to a shell. Not measured either."""
NODE_SECONDS = 200.0
"""Container runtime and images on a Linux node, measured the same way."""
CLUSTER_SECONDS = 440.0
"""From kubeadm init to the last probe pod with two nodes, measured the same way."""
COPY_SECONDS = 3.0
"""An image of 350 MiB to one hypervisor, through libvirt."""


def predict_cost(
    intent: Intent, hypervisors: Sequence[Hypervisor], built: Mapping[str, bool]
) -> Cost:
    """Predict the cost from scratch; seconds are without KVM, accurate to about a factor of three.

    ``hypervisors``: candidates; machines are assumed to be spread evenly. ``built``: by image name,
    True if the image already exists.
    """
    machines = intent.machines
    at_once = sum(hypervisor.parallel_boots or os.cpu_count() or 1 for hypervisor in hypervisors)
    windows = {machine.hardware.image for machine in machines if machine.os == "windows"}
    rounds = math.ceil(len(machines) / max(1, at_once))
    seconds = (
        sum(
            WINDOWS_BUILD_SECONDS if name in windows else BUILD_SECONDS
            for name, done in built.items()
            if not done
        )
        + (WINDOWS_BOOT_SECONDS if windows else 0.0)
        + COPY_SECONDS * len(built) * len(hypervisors)
        + rounds * (BOOT_SECONDS + NETWORK_SECONDS)
        + _cluster_seconds(intent, at_once)
    )
    counts = {
        "machine": len(machines),
        "virtual CPU": sum(machine.hardware.vcpus for machine in machines),
        "unbuilt image": sum(not done for done in built.values()),
        "hypervisor": len(hypervisors),
    }
    return Cost(
        seconds=seconds,
        memory_mib=sum(machine.hardware.memory_mib for machine in machines),
        disk_gib=sum(machine.hardware.disk_gib for machine in machines),
        counts=counts,
    )


def _cluster_seconds(intent: Intent, at_once: int) -> float:
    """Seconds for Kubernetes on Linux machines; Windows nodes are counted with their boot."""
    if intent.kubernetes is None:
        return 0.0
    nodes = sum(
        machine.kubelet is not None and machine.os == "linux" for machine in intent.machines
    )
    return CLUSTER_SECONDS + math.ceil(nodes / max(1, at_once)) * NODE_SECONDS
