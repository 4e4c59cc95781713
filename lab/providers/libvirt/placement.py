"""Which machine goes to which hypervisor, and the MTU that fits between those. Pure.

Nodes spread: each goes where the fewest of its operating system are, then the fewest of all,
then where it takes the smallest part of what is free, then in the inventory's order. So every
pair of operating systems has cells within a hypervisor and across. The router and the client
stand together: then their network, the one outside, need not be carried anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab._errors import PreflightError, UsageError
from lab._log import quantity
from lab.inventory.inventory import Inventory
from lab.topology.intent import Hardware, MachineIntent

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


class _Room:
    """What is left on the hypervisors while machines are put there and taken away again."""

    def __init__(self, hosts: Sequence[Capacity]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._free = {host.name: _amounts(host) for host in hosts}
        self._there: dict[str, list[MachineIntent]] = {host.name: [] for host in hosts}

    def put(self, machine: MachineIntent, host: str) -> None:
        needs = _amounts(machine.hardware)
        self._free[host] = tuple(a - b for a, b in zip(self._free[host], needs, strict=True))
        self._there[host].append(machine)

    def take(self, machine: MachineIntent, host: str) -> None:
        needs = _amounts(machine.hardware)
        self._free[host] = tuple(a + b for a, b in zip(self._free[host], needs, strict=True))
        self._there[host].remove(machine)

    def free(self, host: str) -> tuple[int, ...]:
        return self._free[host]

    def asked(self, host: str) -> tuple[int, ...]:
        needs = [_amounts(machine.hardware) for machine in self._there[host]]
        return tuple(map(sum, zip(*needs, strict=True)))

    def fits(self, machine: MachineIntent, host: str) -> bool:
        return all(
            need <= free
            for need, free in zip(_amounts(machine.hardware), self._free[host], strict=True)
        )

    def preferred(self, machine: MachineIntent, hosts: Sequence[str]) -> list[str]:
        """The hypervisors in the order in which the machine would like them."""
        return sorted(hosts, key=lambda host: self._crowd(machine, host))

    def _crowd(self, machine: MachineIntent, host: str) -> tuple[object, ...]:
        there = self._there[host]
        if machine.kind == "node":
            nodes = [one for one in there if one.kind == "node"]
            crowd = (sum(one.os == machine.os for one in nodes), len(nodes))
        else:
            apart = not any(one.kind in {"router", "client"} for one in there)
            crowd = (int(apart), len(there))
        parts = zip(_amounts(machine.hardware), self._free[host], strict=True)
        return (*crowd, max(need / max(free, 1) for need, free in parts))


def place(
    machines: Sequence[MachineIntent], hosts: Sequence[Capacity], kept: Mapping[str, str]
) -> Mapping[str, str]:
    """Machine to hypervisor, in the order of ``machines``.

    ``kept`` is where machines are already: there they stay, unless the hypervisor is no longer
    among ``hosts`` or the scenario now asks for another.

    Raises
    ------
    UsageError
        When the scenario asks for a hypervisor or a tag that the inventory does not have.
    PreflightError
        When it does not fit: every machine without a place, and what every hypervisor has free.
        When the scenario has more hypervisors than there are.

    """
    allowed = {machine.name: _allowed(machine, hosts) for machine in machines}
    room = _Room(hosts)
    placed: dict[str, str] = {}
    for machine in machines:
        host = kept.get(machine.name)
        if host is not None and host in allowed[machine.name]:
            room.put(machine, host)
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
            "give the machines less in the scenario ('vcpus', 'memory', 'disk'), take other labs "
            "down, or give hypervisors higher limits in the inventory",
        )
    return {machine.name: placed[machine.name] for machine in machines}


def mtu(inventory: Inventory, hosts: Sequence[str], asked: int) -> int:
    """The MTU of the node network that fits from end to end, no larger than ``asked``; bytes.

    Within one hypervisor any fits. Between several it is the smallest of their uplinks' less
    what the tunnel between them adds.

    Raises
    ------
    PreflightError
        When it would be too small for what stands on it.

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


def _said(amounts: tuple[int, ...]) -> str:
    vcpus, memory, disk = amounts
    return f"{quantity(vcpus, 'vCPU')}, {memory:,} MiB of memory and {disk:,} GiB of disk"


def _allowed(machine: MachineIntent, hosts: Sequence[Capacity]) -> tuple[str, ...]:
    wanted = machine.hardware.hypervisor
    names = tuple(host.name for host in hosts)
    if machine.hardware.place is not None:
        return (_counted(machine, machine.hardware.place, names),)
    if wanted is None:
        return names
    if wanted in names:
        return (wanted,)
    tagged = tuple(host.name for host in hosts if wanted in host.tags)
    if not tagged:
        tags = sorted(set().union(*(host.tags for host in hosts)))
        raise UsageError(
            f"placing machine '{machine.name}'",
            f"the scenario wants it on hypervisor '{wanted}', and the inventory has no such name "
            "or tag",
            f"one of the hypervisors {', '.join(names)}"
            + (f" or of the tags {', '.join(tags)}" if tags else ""),
        )
    return tagged


def _counted(machine: MachineIntent, place: int, names: tuple[str, ...]) -> str:
    """The hypervisor of that number."""
    if place > len(names):
        raise PreflightError(
            f"placing machine '{machine.name}'",
            f"the scenario puts it on its hypervisor {place}, and the inventory has "
            f"{quantity(len(names), 'hypervisor')}: {', '.join(names)}",
            "name more hypervisors in the inventory, or ask for fewer ('hypervisors.count', or the "
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
    room: _Room,
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
        room.put(machine, host)
        placed[machine.name] = host
        if _search(rest, allowed, room, placed, tries):
            return True
        room.take(machine, host)
        del placed[machine.name]
    return False


def _refuse_outgrown(placed: Mapping[str, str], room: _Room) -> None:
    lines = [
        f"'{host}' has {_said(_amounts(room.hosts[host]))} for the lab, and "
        f"{', '.join(name for name, where in placed.items() if where == host)} there "
        f"ask for {_said(room.asked(host))}"
        for host in room.hosts
        if min(room.free(host)) < 0
    ]
    if lines:
        raise PreflightError(
            _DOING,
            "machines that are there already do not fit any more:\n  " + "\n  ".join(lines),
            "raise the limits in the inventory, or 'lab down' first, so that all are placed anew",
        )


def _reasons(
    order: Sequence[MachineIntent], allowed: Mapping[str, tuple[str, ...]], room: _Room
) -> Iterator[str]:
    homeless = [one for one in order if not any(room.fits(one, host) for host in allowed[one.name])]
    if homeless:
        yield f"no hypervisor has room for {quantity(len(homeless), 'machine')} of {len(order)}"
    else:
        yield "each machine would fit alone, all together do not"
    for one in homeless or order:
        wanted = one.hardware.hypervisor
        where = f" on '{wanted}', as the scenario wants it" if wanted else ""
        yield f"  '{one.name}' asks for {_said(_amounts(one.hardware))}{where}"
    for host in room.hosts:
        yield f"  '{host}' has free: {_said(room.free(host))}"
