"""Which machine goes to which hypervisor: what each has left, the choice, its record, its cost.

Nodes spread: each goes where the fewest of its operating system are, then the fewest of all,
then where it takes the smallest part of what is free, then in the inventory's order. So every
pair of operating systems has cells within a hypervisor and across. The router and the client
go together: then their network, the one outside, need not be carried anywhere.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lab._errors import PreflightError, UsageError
from lab._log import quantity
from lab.inventory.inventory import Hypervisor, Inventory
from lab.inventory.uri import check
from lab.plan.canonical import plain
from lab.providers.libvirt import connection, domains, storage
from lab.providers.libvirt.host import Host
from lab.providers.provider import LabHandle
from lab.state.files import read_private, write_private
from lab.topology.cost import Cost
from lab.topology.intent import Hardware, Intent, MachineIntent

LAYOUT_FILE = "layout.json"
_FROM_INVENTORY = ("command", "netcat", "no_verify")
"""Parameters of a URI that are the inventory's alone: what libvirt runs, here or on the
hypervisor, and that the hypervisor's key is not checked."""


@dataclass(frozen=True, slots=True)
class LibvirtLayout:
    """Where a lab's machines are."""

    machines: Mapping[str, str]
    accelerated: Mapping[str, bool]
    """Hypervisor to whether guests really run on KVM there."""
    homes: Mapping[str, Hypervisor]
    """The hypervisors, as they were in the inventory: a lab is found without one too.

    A URI here has none of :data:`_FROM_INVENTORY`: where one is needed, the lab is
    taken down with its hypervisor in the inventory.
    """
    users: Mapping[str, str] = field(default_factory=dict)
    """Machine to who logs in; empty until its image is known."""
    windows: tuple[str, ...] = ()
    bundle: str = ""
    """Digest of what its cluster is made from; empty where pods are namespaces."""

    def hypervisors(self) -> tuple[str, ...]:
        """Those that have a machine, in order."""
        return tuple(dict.fromkeys(self.machines.values()))

    def on(self, hypervisor: str) -> tuple[str, ...]:
        """The machines of one hypervisor, in order."""
        return tuple(name for name, where in self.machines.items() if where == hypervisor)


def load_layout(lab: LabHandle) -> LibvirtLayout | None:
    """The lab's layout; None before it was decided, or when it was lost."""
    try:
        found = json.loads(read_private(lab.directory / LAYOUT_FILE))
        homes = {name: _read_hypervisor(fields) for name, fields in found["homes"].items()}
        windows = tuple(found.get("windows", ()))
        bundle = str(found.get("bundle", ""))
        return LibvirtLayout(
            found["machines"], found["accelerated"], homes, found["users"], windows, bundle
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def save_layout(lab: LabHandle, layout: LibvirtLayout) -> None:
    """Write it down, before any machine is made."""
    homes = {
        name: one.replace(uri=_without_local_parameters(one.uri))
        for name, one in layout.homes.items()
    }
    content = json.dumps(plain(replace(layout, homes=homes)), indent=1)
    write_private(lab.directory / LAYOUT_FILE, content + "\n")


def _read_hypervisor(fields: dict[str, Any]) -> Hypervisor:
    """One of the file, whose URI has passed the inventory's own check."""
    safe = check(_without_local_parameters(fields["uri"]))
    return Hypervisor(**{**fields, "uri": safe, "tags": frozenset(fields["tags"])})


def _without_local_parameters(uri: str) -> str:
    place, _, query = uri.partition("?")
    written = re.split("[&;]", query)  # libvirt takes either, and names in any case
    kept = [one for one in written if _parameter_name(one) not in _FROM_INVENTORY]
    return "?".join(filter(None, (place, "&".join(kept))))


def _parameter_name(parameter: str) -> str:
    return unquote(parameter.partition("=")[0]).lower()


CARRIER_OVERHEAD = 50
"""Bytes that VXLAN over IPv4 adds to a packet: inner Ethernet 14, VXLAN 8, UDP 8, IPv4 20
(RFC 7348, section 5)."""
MINIMUM_MTU = 576 + CARRIER_OVERHEAD
"""Every IPv4 host must take packets of 576 bytes (RFC 791, section 3.1), pods too; an overlay of
the lab's own takes 50 from what they have."""
_TRIES = 10_000
"""Places tried before it is said that there is none. A lab that fits takes one try a machine,
save where it is very tight."""
_DOING = "placing the machines on hypervisors"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one hypervisor has left for the lab, whose own machines there are not counted."""

    name: str
    tags: frozenset[str]
    vcpus: int
    memory_mib: int
    disk_gib: int


class _FreeRoom:
    """What is left on the hypervisors while machines are put there and taken away again."""

    def __init__(self, hosts: Sequence[Capacity]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self.there: dict[str, list[MachineIntent]] = {host.name: [] for host in hosts}

    def asked(self, host: str) -> tuple[int, ...]:
        needs = [_amounts(machine.hardware) for machine in self.there[host]]
        return tuple(map(sum, zip(*needs, (0, 0, 0), strict=True)))

    def free(self, host: str) -> tuple[int, ...]:
        limits = _amounts(self.hosts[host])
        return tuple(limit - used for limit, used in zip(limits, self.asked(host), strict=True))

    def fits(self, machine: MachineIntent, host: str) -> bool:
        return all(
            need <= free
            for need, free in zip(_amounts(machine.hardware), self.free(host), strict=True)
        )

    def preferred(self, machine: MachineIntent, hosts: Sequence[str]) -> list[str]:
        """The hypervisors in the order in which the machine would like them."""
        return sorted(hosts, key=lambda host: self._crowd(machine, host))

    def _crowd(self, machine: MachineIntent, host: str) -> tuple[object, ...]:
        there = self.there[host]
        if machine.kind == "node":
            nodes = [one for one in there if one.kind == "node"]
            crowd = (sum(one.os == machine.os for one in nodes), len(nodes))
        else:
            apart = not any(one.kind in {"router", "client"} for one in there)
            crowd = (int(apart), len(there))
        parts = zip(_amounts(machine.hardware), self.free(host), strict=True)
        return (*crowd, max(need / max(free, 1) for need, free in parts))


def place(
    machines: Sequence[MachineIntent], hosts: Sequence[Capacity], kept: Mapping[str, str]
) -> Mapping[str, str]:
    """Machine to hypervisor, in the order of ``machines``.

    ``kept`` is where machines are already: there they stay, unless the hypervisor is no longer
    among ``hosts`` or the scenario now asks for another.

    Raises UsageError when the scenario asks for a hypervisor or a tag that the inventory does not
    have. Raises PreflightError when it does not fit: every machine without a place, and what every
    hypervisor has free. When the scenario has more hypervisors than there are.
    """
    allowed = {machine.name: _allowed(machine, hosts) for machine in machines}
    room = _FreeRoom(hosts)
    placed: dict[str, str] = {}
    for machine in machines:
        host = kept.get(machine.name)
        if host is not None and host in allowed[machine.name]:
            room.there[host].append(machine)
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


def fitting_mtu(inventory: Inventory, hosts: Sequence[str], asked: int) -> int:
    """The MTU of the node network that fits from end to end, no larger than ``asked``; bytes.

    Within one hypervisor any fits. Between several it is the smallest of their uplinks' less
    what the tunnel between them adds.

    Raises PreflightError when it would be too small for what uses it.
    """
    used = [inventory.hypervisors[name] for name in dict.fromkeys(hosts)]
    if len(used) < 2:  # noqa: PLR2004  one hypervisor has no network between
        return asked
    narrowest = min(used, key=lambda one: one.mtu)
    fits = min(asked, narrowest.mtu - CARRIER_OVERHEAD)
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


def _amounts(one: Capacity | Hardware) -> tuple[int, ...]:
    return one.vcpus, one.memory_mib, one.disk_gib


def _describe(amounts: tuple[int, ...]) -> str:
    vcpus, memory, disk = amounts
    return f"{quantity(vcpus, 'vCPU')}, {memory:,} MiB of memory and {disk:,} GiB of disk"


def _allowed(machine: MachineIntent, hosts: Sequence[Capacity]) -> tuple[str, ...]:
    wanted = machine.hardware.hypervisor
    names = tuple(host.name for host in hosts)
    if machine.hardware.place is not None:
        return (_numbered(machine, machine.hardware.place, names),)
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


def _numbered(machine: MachineIntent, place: int, names: tuple[str, ...]) -> str:
    if place > len(names):
        raise PreflightError(
            f"placing machine '{machine.name}'",
            f"the scenario puts it on its hypervisor {place}, and the inventory has "
            f"{quantity(len(names), 'hypervisor')}: {', '.join(names)}",
            "add hypervisors to the inventory, or ask for fewer ('hypervisors.count', or the "
            "last number of a spec string)",
        )
    return names[place - 1]


def _urgency(machine: MachineIntent, choices: int) -> tuple[object, ...]:
    """Nodes before router and client, then who has least choice, then the largest."""
    needs = _amounts(machine.hardware)
    return machine.kind != "node", choices, tuple(-need for need in needs[1:]), -needs[0]


def _search(
    order: Sequence[MachineIntent],
    allowed: Mapping[str, tuple[str, ...]],
    room: _FreeRoom,
    placed: dict[str, str],
    tries: Iterator[int],
) -> bool:
    """Put every machine where it likes best; where that ends in a corner, go back and try on.

    When it is False, nothing was put anywhere.
    """
    if not order:
        return True
    machine, rest = order[0], order[1:]
    for host in room.preferred(machine, allowed[machine.name]):
        if not room.fits(machine, host):
            continue
        if next(tries, None) is None:
            return False
        room.there[host].append(machine)
        placed[machine.name] = host
        if _search(rest, allowed, room, placed, tries):
            return True
        room.there[host].remove(machine)
        del placed[machine.name]
    return False


def _refuse_outgrown(placed: Mapping[str, str], room: _FreeRoom) -> None:
    lines = [
        f"'{host}' has {_describe(_amounts(room.hosts[host]))} for the lab, and "
        f"{', '.join(name for name, where in placed.items() if where == host)} there "
        f"ask for {_describe(room.asked(host))}"
        for host in room.hosts
        if min(room.free(host)) < 0
    ]
    if lines:
        raise PreflightError(
            _DOING,
            "existing machines no longer fit:\n  " + "\n  ".join(lines),
            "raise the limits in the inventory, or 'lab down' first, so that all are placed anew",
        )


def _reasons(
    order: Sequence[MachineIntent], allowed: Mapping[str, tuple[str, ...]], room: _FreeRoom
) -> Iterator[str]:
    homeless = [one for one in order if not any(room.fits(one, host) for host in allowed[one.name])]
    if homeless:
        yield f"no hypervisor has room for {quantity(len(homeless), 'machine')} of {len(order)}"
    else:
        yield "each machine would fit by itself, but not all together"
    for one in homeless or order:
        wanted = one.hardware.hypervisor
        where = f" on '{wanted}', as the scenario wants it" if wanted else ""
        yield f"  '{one.name}' asks for {_describe(_amounts(one.hardware))}{where}"
    for host in room.hosts:
        yield f"  '{host}' has free: {_describe(room.free(host))}"


_OWN_EIGHTH = 8
"""Of its memory, a hypervisor keeps an eighth for itself, unless the inventory says."""
_VCPUS_A_THREAD = 8
"""Labs wait more than they compute; OpenStack's Nova gave 16 by default for years."""
_THIN = 4
"""Clones hold what was written to them alone: disks may add up to this many times the room."""
GIB = 1 << 30
_MIB = 1 << 20
_UNKNOWN_GIB = 1 << 20


def decide_layout(lab: LabHandle, intent: Intent, hosts: Mapping[str, Host]) -> LibvirtLayout:
    """Where every machine goes; what is there already stays where it is.

    Raises PreflightError when a hypervisor cannot be reached, a stranger's object has a name of
    the lab, or it does not fit.
    """
    before = load_layout(lab)
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

    ``own_mib``: MiB that this machine has; None for what the kernel says.
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
        with hosts[where].explain_errors(f"looking for machine '{machine}'"):
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
        with host.explain_errors(f"looking for the networks of machine '{machine.name}'"):
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
    """What is left there for this lab: the limits less what all other labs have."""
    given = host.hypervisor
    with host.explain_errors("reading the free capacity"):
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
    directory = host.hypervisor.storage
    pools = host.connected.listAllStoragePools()
    for _, (path, active, info) in connection.each(
        pools, lambda one: (storage.directory_of(one), one.isActive(), one.info())
    ):
        if active and path.startswith(directory):
            return int(info[3])
    if host.hypervisor.uri == "qemu:///system" and Path(directory).is_dir():
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize
    return None


BOOT_SECONDS = 12.0
"""From start to SSH, one guest a thread, under TCG on 2 cores; KVM takes a third of it."""
NETWORK_SECONDS = 6.0
"""Making the network inside one guest for the first time, measured the same way."""
BUILD_SECONDS = 60.0
"""A Debian image from packages, measured the same way; an installer takes many times that."""
WINDOWS_BUILD_SECONDS = 4 * 3600.0
"""Windows Server from its medium. Not measured: no Windows ran where this was written."""
WINDOWS_BOOT_SECONDS = 900.0
"""From a generalised image to a shell. Not measured either."""
NODE_SECONDS = 200.0
"""Container runtime and images of a cluster's Linux node, measured as the boot was."""
CLUSTER_SECONDS = 440.0
"""From kubeadm init to the last probe pod with two nodes, measured the same way."""
COPY_SECONDS = 3.0
"""An image of 350 MiB to one hypervisor, through libvirt."""


def predict_cost(
    intent: Intent, hypervisors: Sequence[Hypervisor], built: Mapping[str, bool]
) -> Cost:
    """Predict, from nothing; seconds are without KVM, good to about a factor of three.

    ``intent``: the lab. ``hypervisors``: where its machines may be; all are taken to share them
    evenly. ``built``: by name of image, whether it need not be built any more.
    """
    machines = intent.machines
    at_once = sum(one.parallel_boots or os.cpu_count() or 1 for one in hypervisors)
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
    """What Kubernetes takes on Linux machines; Windows nodes are counted with their boot."""
    if intent.kubernetes is None:
        return 0.0
    nodes = sum(
        machine.kubelet is not None and machine.os == "linux" for machine in intent.machines
    )
    return CLUSTER_SECONDS + math.ceil(nodes / max(1, at_once)) * NODE_SECONDS
