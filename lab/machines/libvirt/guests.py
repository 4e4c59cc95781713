"""Access to a lab's virtual machines: SSH to Linux, WinRM and SSH to Windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.facts.node import NodeFacts
from lab.machines import keyring
from lab.machines.agents.fleet import Prober
from lab.machines.guests import EMULATION, LOOK_SECONDS, Guests
from lab.machines.keyring import Pins
from lab.machines.libvirt import foreign, networks, ownership
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.placement import LibvirtLayout
from lab.machines.libvirt.system import GuestSystem
from lab.machines.system import system_of
from lab.providers.provider import LabHandle, Machine, Outcome, Probe, ProbeSettings
from lab.shells.shell import Reach, Shell
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.machines.ssh.shell import SshShell


class LibvirtGuests(Guests):
    """All machines of one lab; connections are opened on first use."""

    def __init__(self, lab: LabHandle, layout: LibvirtLayout, hosts: Mapping[str, Host]) -> None:
        linux = [name for name in layout.machines if name not in layout.windows]
        super().__init__(lab, linux, cluster=bool(layout.bundle))
        self._layout = layout
        self._hosts = hosts
        self._shells: dict[str, SshShell] = {}
        self._foreign_shells: dict[str, Shell] = {}

    def close(self) -> None:
        """Close every connection."""
        shells: tuple[Shell, ...] = (*self._shells.values(), *self._foreign_shells.values())
        for shell in shells:
            shell.close()
        self._shells.clear()
        self._foreign_shells.clear()

    @cached_property
    def _addresses(self) -> Mapping[str, str]:
        addresses: dict[str, str] = {}
        for name in self._layout.hypervisors():
            host = self._hosts[name]
            with host.explain_errors(f"reading the addresses of lab '{self._lab.name}'"):
                network = networks.find(host.connected, self._lab, ownership.MANAGEMENT)
                if network is not None:
                    addresses |= networks.addresses_of(network.XMLDesc())
        return addresses

    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises BrokenError if it has none because its management network is missing.
        """
        if machine not in self._addresses:
            raise BrokenError(
                f"looking for the address of machine '{machine}'",
                "no management network has one reserved for it",
                f"lab up {self._lab.name}",
            )
        return self._addresses[machine]

    def reach(self, machine: str) -> Reach:
        """Everything needed to get a shell on it."""
        from lab.machines.libvirt.host import jump_to  # noqa: PLC0415  not needed for a local lab

        return Reach(
            name=machine,
            address=self.address(machine),
            user=self._layout.users[machine],
            keyfile=keyring.client_file(self._lab),
            host_key=self._pins(machine).key
            if machine in self._layout.windows
            else keyring.host_key(self._lab, machine).public,
            jump=jump_to(self._hosts[self._layout.machines[machine]].hypervisor),
        )

    def _pins(self, machine: str) -> Pins:
        """A Windows machine's pins; without them there is no connection."""
        pins = keyring.pins(self._lab, machine)
        if pins is None:
            raise BrokenError(
                f"getting a shell on machine '{machine}'",
                "its host keys have not appeared on its console yet, so no answer can be trusted",
                f"'lab up {self._lab.name}' waits for them; 'lab console' shows its progress",
            )
        return pins

    def shell(self, machine: str) -> Shell:
        """A shell on the machine; always the same one."""
        if machine in self._layout.windows:
            return self._foreign_shell(machine)
        return self.linux_shell(machine)

    def linux_shell(self, machine: str) -> SshShell:
        """A shell on a Linux machine; always the same one."""
        if machine not in self._shells:
            from lab.machines.ssh.shell import SshShell  # noqa: PLC0415  slow, and an extra

            self._shells.setdefault(machine, SshShell(self.reach(machine)))  # threads share one
        return self._shells[machine]

    def _foreign_shell(self, machine: str) -> Shell:
        if machine not in self._foreign_shells:
            from lab.shells.shell import WindowsReach  # noqa: PLC0415  few labs have one

            system = system_of("windows", GuestSystem, f"getting a shell on machine '{machine}'")
            password = keyring.password(self._lab, machine)
            reach = WindowsReach(self.reach(machine), password, self._pins(machine).certificate)
            self._foreign_shells[machine] = system.open_shell(reach)
        return self._foreign_shells[machine]

    def silent(self) -> Mapping[str, str]:
        """Windows machines that do not run commands, with the error."""
        silent_machines: dict[str, str] = {}
        for name in self._layout.windows:
            try:
                self.shell(name).run(("hostname",), Deadline(LOOK_SECONDS * self.patience))
            except LabError as error:
                silent_machines[name] = error.happened
        return silent_machines

    @contextmanager
    def forward(self, machine: str, port: int, seconds: float) -> Iterator[str]:
        """Yield the ``https://`` URL that reaches a TCP port of a Linux machine."""
        with self.linux_shell(machine).forward(("127.0.0.1", port), seconds) as local:
            yield f"https://127.0.0.1:{local}"

    def probe(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        others: Mapping[str, Prober] | None = None,
    ) -> Mapping[int, Outcome]:
        """Run every probe from its source's machine.

        Probes that need pods on Windows require a cluster, where ``others`` send them.
        """
        barred = {} if self._layout.bundle else foreign.refuse_probes(intent, probes)
        rest = [probe for probe in probes if probe.key not in barred]
        done = super().probe(
            intent, rest, settings, lambda ended: progress(ended + len(barred)), others
        )
        return {probe.key: (barred.get(probe.key) or done[probe.key]) for probe in probes}

    def machine(self, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name; UsageError if there is none."""
        foreign.refuse_pod(intent, name)
        return super().machine(intent, name)

    def observe(
        self, intent: Intent, places: Mapping[str, Collection[str]], deadline: Deadline
    ) -> dict[str, NodeFacts | LabError]:
        """Observe Linux machines; for others, an error that they were not observed."""
        linux = {name: pods for name, pods in places.items() if name not in self._layout.windows}
        action = "looking at a machine that runs Windows"
        strange = BrokenError(action, "without a cluster, the lab has nothing on it")
        facts = super().observe(intent, linux, deadline)
        return {name: facts.get(name, strange) for name in places}

    @property
    def patience(self) -> int:
        """Factor for deadlines: more than 1 if some machine is emulated."""
        return 1 if all(self._layout.accelerated.values()) else EMULATION
