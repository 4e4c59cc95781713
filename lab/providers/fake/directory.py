"""An Intent turned round: from names and addresses to what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address, ip_interface, ip_network

from lab.topology.intent import Intent, MachineIntent, Pod, ProxiedService


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint stands: a machine, or a pod on it."""

    machine: MachineIntent
    pod: Pod | None = None

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.pod.name if self.pod else self.machine.name


@dataclass(frozen=True, slots=True)
class Directory:
    """Who has which name and address; addresses are without prefix length."""

    by_name: Mapping[str, Place]
    by_address: Mapping[str, Place]
    zone: Mapping[str, str]
    """Addresses of each fully qualified name, of Services and of pods behind headless ones."""

    @classmethod
    def of(cls, intent: Intent) -> Directory:
        """The directory of an Intent."""
        places = [Place(machine) for machine in intent.machines]
        places += [Place(machine, pod) for machine in intent.machines for pod in machine.pods]
        services = {
            machine.name: machine.translation.services
            for machine in intent.machines
            if machine.translation
        }
        return cls(
            {place.name: place for place in places},
            {address: place for place in places for address in _addresses(place)},
            _zone(intent, {each for offered in services.values() for each in offered}),
        )


def bare(address: str) -> str:
    """The address without its prefix length."""
    return address.partition("/")[0]


def source_address(machine: MachineIntent, destination: str) -> str | None:
    """The address that a machine sends from: the first of the device that its best route names.

    None where it has no route.
    """
    if destination in _machine_addresses(machine):
        return destination
    wanted = ip_address(destination)
    ways = [(prefix, device) for prefix, device in _ways(machine) if wanted in prefix]
    if not ways:
        return None
    _, best = max(ways, key=lambda way: way[0].prefixlen)
    addresses = dict(_devices(machine)).get(best, ())
    return bare(addresses[0]) if addresses else None


def _addresses(place: Place) -> tuple[str, ...]:
    return (bare(place.pod.address),) if place.pod else _machine_addresses(place.machine)


def _machine_addresses(machine: MachineIntent) -> tuple[str, ...]:
    return tuple(bare(address) for _, listed in _devices(machine) for address in listed)


def _devices(machine: MachineIntent) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every device of the machine itself, with its addresses."""
    for device in (*machine.interfaces, machine.bridge, machine.tunnel):
        if device is not None:
            yield device.name, device.addresses


def _ways(machine: MachineIntent) -> Iterator[tuple[IPv4Network, str]]:
    """Every prefix that the machine can send to, and the device it takes."""
    for name, addresses in _devices(machine):
        for address in addresses:
            yield IPv4Network(ip_interface(address).network), name
    for route in machine.routes:
        everywhere = route.destination == "default"
        prefix = "0.0.0.0/0" if everywhere else route.destination
        yield IPv4Network(ip_network(prefix)), route.device


def _zone(intent: Intent, services: set[ProxiedService]) -> dict[str, str]:
    """Every name under the namespace that the pods' resolvers search first."""
    namespaces = {
        pod.resolver.search[0]
        for machine in intent.machines
        for pod in machine.pods
        if pod.resolver.search
    }
    found = {f"{each.name}.{domain}": each.address for each in services for domain in namespaces}
    for each in intent.headless:
        for domain in namespaces:
            every = sorted(ip_address(one.address) for one in each.backends)
            found[f"{each.name}.{domain}"] = ", ".join(map(str, every))
            found |= {f"{one.pod}.{each.name}.{domain}": one.address for one in each.backends}
    return found
