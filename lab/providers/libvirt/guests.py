"""The machines of a lab, from inside: shells on them, and the Intent applied through those."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab._log import say
from lab.cluster.linux.site import Site
from lab.cluster.observed import PodLink
from lab.cluster.observers.facts import NodeFacts
from lab.cluster.observers.gathering import LinuxNode, logs
from lab.guests.shell import GuestShell, Reach
from lab.providers.capture import Taken, Tap
from lab.providers.libvirt import keyring, names, networks, windows
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.keyring import Pins
from lab.providers.libvirt.layout import Layout
from lab.providers.libvirt.windows import WindowsMachine
from lab.providers.node.control import NodeControl
from lab.providers.node.fleet import Fleet
from lab.providers.node.probing import Prober
from lab.providers.provider import (
    SLOW_EVIDENCE_SECONDS,
    Evidence,
    LabHandle,
    Machine,
    Outcome,
    Probe,
    ProbeSettings,
)
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.guests.ssh import SshShell
    from lab.guests.windows_shell import WindowsShell

EMULATION = 8
"""How much slower than KVM things may go under TCG before they count as not going at all."""
_APPLY_SECONDS = 60.0
_LOOK_SECONDS = 10.0


class Guests:
    """Every machine of one lab; the connections are opened when they are first used."""

    def __init__(self, lab: LabHandle, layout: Layout, hosts: Mapping[str, Host]) -> None:
        self._lab = lab
        self._layout = layout
        self._hosts = hosts
        self._shells: dict[str, SshShell] = {}
        self._windows_shells: dict[str, WindowsShell] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give every connection up."""
        shells: tuple[GuestShell, ...] = (*self._shells.values(), *self._windows_shells.values())
        for shell in shells:
            shell.close()
        self._shells.clear()
        self._windows_shells.clear()

    @cached_property
    def _addresses(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in self._layout.hypervisors():
            host = self._hosts[name]
            with host.told(f"reading the addresses of lab '{self._lab.name}'"):
                network = networks.find(host.connected, self._lab, names.MANAGEMENT)
                if network is not None:
                    found |= networks.addresses_of(network.XMLDesc())
        return found

    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises
        ------
        BrokenError
            If it has none: its management network is gone.

        """
        if machine not in self._addresses:
            raise BrokenError(
                f"looking for the address of machine '{machine}'",
                "no management network has one reserved for it",
                f"lab up {self._lab.name}",
            )
        return self._addresses[machine]

    def reach(self, machine: str) -> Reach:
        """All that is needed to get a shell on it."""
        from lab.guests.hypervisor import jump_to  # noqa: PLC0415  not for a lab that is local

        return Reach(
            name=machine,
            address=self.address(machine),
            user=self._layout.users[machine],
            keyfile=keyring.client_file(self._lab),
            host_key=self._host_key(machine),
            jump=jump_to(self._hosts[self._layout.machines[machine]].hypervisor),
        )

    def _host_key(self, machine: str) -> str:
        if machine in self._layout.windows:
            return self._pins(machine).key
        return keyring.host_key(self._lab, machine).public

    def _pins(self, machine: str) -> Pins:
        """What a Windows machine has said it will show; it is reached by nothing else."""
        pins = keyring.pins(self._lab, machine)
        if pins is None:
            raise BrokenError(
                f"getting a shell on machine '{machine}'",
                "it has not said its keys on its console yet, so nothing that answers is it",
                f"'lab up {self._lab.name}' waits for them; 'lab console' shows how far it is",
            )
        return pins

    def shell(self, machine: str) -> GuestShell:
        """A shell on the machine; always the same one."""
        if machine in self._layout.windows:
            return self.windows_shell(machine)
        return self.linux_shell(machine)

    def linux_shell(self, machine: str) -> SshShell:
        """A shell on a Linux machine; always the same one."""
        if machine not in self._shells:
            from lab.guests.ssh import SshShell  # noqa: PLC0415  slow, and an extra

            self._shells[machine] = SshShell(self.reach(machine))
        return self._shells[machine]

    def windows_shell(self, machine: str) -> WindowsShell:
        """A shell on a Windows machine; always the same one."""
        if machine not in self._windows_shells:
            from lab.guests.windows_reach import WindowsReach  # noqa: PLC0415  few labs have one
            from lab.guests.windows_shell import WindowsShell  # noqa: PLC0415  slow, and an extra

            password = keyring.password(self._lab, machine)
            reach = WindowsReach(self.reach(machine), password, self._pins(machine).certificate)
            self._windows_shells[machine] = WindowsShell(reach)
        return self._windows_shells[machine]

    @cached_property
    def _controls(self) -> Mapping[str, NodeControl]:
        by_hand = ("lab", "ssh", self._lab.name)
        return {
            name: NodeControl(name, self.shell(name), (*by_hand, name, "--"), self._pods_token)
            for name in self._layout.machines
            if name not in self._layout.windows
        }

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._controls, cluster=bool(self._pods_token))

    @property
    def site(self) -> Site:
        """The machines as those see them that start programs on them."""
        return Site(self.shell, {}, self._lab.directory, say, self.patience)

    @property
    def _pods_token(self) -> str:
        """What pods of a cluster carry; empty where they are the lab's own namespaces."""
        return self._lab.token if self._layout.bundle else ""

    def links(self, deadline: Deadline) -> tuple[PodLink, ...]:
        """How a cluster's pods are plugged in, on every machine that says so in time."""
        return self._fleet.links(deadline)

    def apply(self, intent: Intent) -> None:
        """Make the network of every machine as the intent has it, where it is not so already.

        Raises
        ------
        LabError
            Naming every machine where it could not be made.

        """
        ill = self.ailments(intent)
        if ill:
            fleet = Fleet({name: self._controls[name] for name in ill})
            fleet.up_all(intent, Deadline(_APPLY_SECONDS * self.patience))

    def ailments(self, intent: Intent) -> Mapping[str, str]:
        """What is wrong with the network of each machine that something is wrong with.

        Windows machines have none of the lab's making: that of their pods is Kubernetes' own.
        """
        return self._fleet.ailments(intent, Deadline(_LOOK_SECONDS * self.patience))

    def silent(self) -> Mapping[str, str]:
        """The Windows machines that take no command, and what was met."""
        found: dict[str, str] = {}
        for name in self._layout.windows:
            try:
                self.shell(name).run(("hostname",), Deadline(_LOOK_SECONDS * self.patience))
            except LabError as error:
                found[name] = error.happened
        return found

    def probe(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        others: Mapping[str, Prober] | None = None,
    ) -> Mapping[int, Outcome]:
        """Try every probe, each from its own machine.

        Those that need pods on Windows cannot be made but on a cluster, where ``others`` make
        them.
        """
        cluster = bool(self._pods_token)
        barred = {} if cluster else windows.unprobeable(intent, probes)
        rest = [probe for probe in probes if probe.key not in barred]
        fleet = Fleet(self._controls, cluster=cluster, others=others)
        done = fleet.probe_all(
            intent,
            rest,
            self._slower(settings, cluster=cluster),
            lambda ended: progress(ended + len(barred)),
        )
        return {probe.key: (barred.get(probe.key) or done[probe.key]) for probe in probes}

    def machine(self, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name; UsageError if there is none."""
        if name in self._layout.windows:
            return WindowsMachine(name, self._lab.name, self.shell(name))
        windows.refuse_pod(intent, name)
        return self._fleet.machine(intent, name)

    def observe(
        self, intent: Intent, asked: Mapping[str, Collection[str]], deadline: Deadline
    ) -> dict[str, NodeFacts | LabError]:
        """What is seen of machines that run Linux; of the others, that they were not asked."""
        linux = {name: pods for name, pods in asked.items() if name in self._controls}
        doing = "looking at a machine that runs Windows"
        strange = BrokenError(doing, "without a cluster, nothing of the lab is on it")
        seen = self._fleet.observe(intent, linux, deadline)
        return {name: seen.get(name, strange) for name in asked}

    def capture(
        self,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Take down all that passes the taps of machines that run Linux; see the seam."""
        return self._fleet.capture(intent, taps, limit, during, deadline)

    def logs(
        self, asked: Collection[str], deadline: Deadline, since: str = ""
    ) -> Iterator[Evidence]:
        """The end of what machines that run Linux have logged. Never raises."""
        nodes = (LinuxNode(one, self.shell(one)) for one in self._controls if one in asked)
        for path, content in logs(nodes, deadline, self.patience, since):
            yield Evidence(path, content)

    def evidence(self) -> Iterator[Evidence]:
        """What every machine shows of its network. Never raises."""
        seconds = min(_LOOK_SECONDS * self.patience, SLOW_EVIDENCE_SECONDS)
        return self._fleet.evidence(Deadline(seconds))

    @property
    def patience(self) -> int:
        """By how much a deadline is longer than on hardware."""
        return 1 if all(self._layout.accelerated.values()) else EMULATION

    def _slower(self, settings: ProbeSettings, *, cluster: bool) -> ProbeSettings:
        """Emulated processors need more time for the same exchange, and bear fewer at once.

        Far fewer where Kubernetes runs beside: with 32 at once, one in twenty went unanswered
        for eight seconds.
        """
        patience = self.patience
        return ProbeSettings(
            timeout=settings.timeout * patience,
            in_flight=max(1, settings.in_flight // (patience**2 if cluster else patience)),
        )
