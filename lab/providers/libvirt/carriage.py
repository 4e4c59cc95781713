"""All the tunnels of one lab, on all of its hypervisors: seen to be possible, made, looked at."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import carrier
from lab.providers.libvirt.boots import in_parallel
from lab.providers.libvirt.carrier import Carrier
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.links import Links
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.remote.shell import Shell
from lab.topology.intent import Intent


def check(shell: Shell, hypervisor: Hypervisor, deadline: Deadline) -> None:
    """See that a hypervisor can be one end of tunnels; nothing is made that stays.

    Raises
    ------
    PreflightError
        When it cannot: no right to, no VXLAN, another address or a smaller MTU than the
        inventory says.

    """
    links = Links(shell, deadline)
    links.try_vxlan()
    address = tunnel_end(hypervisor)
    doing = f"looking for the uplink of hypervisor '{hypervisor.name}'"
    held = links.holds(address)
    if held is None:
        raise PreflightError(
            doing,
            f"none of its devices has the address {address}",
            f"give '{hypervisor.name}' in the inventory the 'address' by which the other "
            "hypervisors reach it",
        )
    device, mtu = held
    if mtu < hypervisor.mtu:
        raise PreflightError(
            doing,
            f"its device '{device}' has an MTU of {mtu}, and the inventory says {hypervisor.mtu}",
            f"write 'mtu = {mtu}' for '{hypervisor.name}' into the inventory",
        )


def tunnel_end(hypervisor: Hypervisor) -> str:
    """The IPv4 address of a hypervisor's end of the tunnels.

    Raises
    ------
    PreflightError
        When the inventory has none and the host of its URI is no address that can be found.

    """
    if hypervisor.address is not None:
        return hypervisor.address
    host = uri.parse(hypervisor.uri).host
    doing = f"finding the address of hypervisor '{hypervisor.name}'"
    hint = f"give '{hypervisor.name}' an 'address' in the inventory"
    if host is None:
        raise PreflightError(doing, "its URI names no host", hint)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise PreflightError(doing, f"'{host}' of its URI: {error}", hint) from error
    return str(found[0][4][0])


T = TypeVar("T")
SECONDS = 60.0
"""For all hypervisors; the first connection to one took 10.8 s on a slow machine."""


@dataclass(frozen=True)
class Carriage:
    """What joins the networks of a lab whose machines are on several hypervisors."""

    lab: LabHandle
    intent: Intent
    machines: Mapping[str, str]
    """Machine to hypervisor."""
    hosts: Mapping[str, Host]
    deadline: Deadline = field(default_factory=lambda: Deadline(SECONDS))

    def check(self) -> None:
        """See that every hypervisor that needs tunnels can have them; none is made.

        Raises
        ------
        PreflightError
            Naming the hypervisor, what is in the way, and the fix.

        """
        self._on_each(
            lambda host: check(host.shell, host.hypervisor, self.deadline), self._joined()
        )

    def make(self, owner: Owner) -> tuple[str, ...]:
        """Have every tunnel end as it must be, and no other of this lab's; what was done.

        Raises
        ------
        PreflightError, BrokenError
            As :func:`carrier.ensure` does.

        """
        wanted = self._planned()
        done = self._on_each(lambda host: self._make(host, wanted, owner), self._joined())
        return tuple(line for lines in done.values() for line in lines)

    def differences(self) -> tuple[str, ...]:
        """What is not as it must be, in words; empty when all is, or none is needed."""
        wanted = self._planned()
        found = self._on_each(lambda host: self._look(host, wanted), self._joined())
        return tuple(line for lines in found.values() for line in lines)

    def _joined(self) -> tuple[str, ...]:
        spans = carrier.spans(self.intent, self.machines)
        return tuple(dict.fromkeys(name for hosts in spans.values() for name in hosts))

    def _planned(self) -> tuple[Carrier, ...]:
        joined = self._joined()
        ends = {name: tunnel_end(self.hosts[name].hypervisor) for name in joined}
        taken = self._on_each(
            lambda host: carrier.taken(host.shell, self.lab.token, self.deadline), joined
        )
        numbers = frozenset[int]().union(*taken.values())
        return carrier.plan(self.lab, self.intent, self.machines, ends, numbers)

    def _make(self, host: Host, wanted: tuple[Carrier, ...], owner: Owner) -> list[str]:
        done: list[str] = []
        here = [one for one in wanted if one.host == host.name]
        for device, whose in carrier.marks(host.shell, self.deadline):
            if whose.token == self.lab.token and device not in {one.device for one in here}:
                carrier.remove_one(host.shell, device, self.deadline)
                done.append(f"tunnel end '{device}' on '{host.name}' removed")
        done += [
            f"tunnel end '{one.device}' on '{host.name}' made"
            for one in here
            if carrier.ensure(host.shell, one, owner, self.deadline)
        ]
        return done

    def _look(self, host: Host, wanted: tuple[Carrier, ...]) -> list[str]:
        return [
            line
            for one in wanted
            if one.host == host.name
            for line in carrier.differences(host.shell, one, self.deadline)
        ]

    def _on_each(self, act: Callable[[Host], T], names: tuple[str, ...]) -> Mapping[str, T]:
        def job(host: Host) -> Callable[[], T]:
            return lambda: act(host)

        jobs = {name: {name: job(self.hosts[name])} for name in names}
        return in_parallel(jobs, {}, self.deadline)
