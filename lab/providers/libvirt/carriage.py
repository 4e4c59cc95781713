"""All the tunnels of one lab, on all of its hypervisors: seen to be possible, made, looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lab._deadline import Deadline
from lab.providers.libvirt import carrier, uplink
from lab.providers.libvirt.boots import in_parallel
from lab.providers.libvirt.carrier import Carrier
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

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
            lambda host: uplink.check(host.shell, host.hypervisor, self.deadline), self._joined()
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
        ends = {name: uplink.tunnel_end(self.hosts[name].hypervisor) for name in joined}
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
