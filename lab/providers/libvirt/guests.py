"""The machines of a lab, from inside: shells on them, and the Intent applied through those."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import Self

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests.shell import GuestShell, Reach
from lab.providers.libvirt import keyring, names, networks
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import Layout
from lab.providers.node.control import NodeControl
from lab.providers.node.fleet import Fleet
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
        self._shells: dict[str, GuestShell] = {}

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
        for shell in self._shells.values():
            shell.close()
        self._shells.clear()

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
            host_key=keyring.host_key(self._lab, machine).public,
            jump=jump_to(self._hosts[self._layout.machines[machine]].hypervisor),
        )

    def shell(self, machine: str) -> GuestShell:
        """A shell on the machine; always the same one."""
        if machine not in self._shells:
            from lab.guests.ssh import SshShell  # noqa: PLC0415  slow, and an extra

            self._shells[machine] = SshShell(self.reach(machine))
        return self._shells[machine]

    @cached_property
    def _controls(self) -> Mapping[str, NodeControl]:
        by_hand = ("lab", "ssh", self._lab.name)
        return {
            name: NodeControl(name, self.shell(name), (*by_hand, name, "--"))
            for name in self._layout.machines
        }

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._controls)

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
            fleet.up_all(intent, Deadline(_APPLY_SECONDS * self._patience))

    def ailments(self, intent: Intent) -> Mapping[str, str]:
        """What is wrong with each machine that something is wrong with."""
        return self._fleet.ailments(intent, Deadline(_LOOK_SECONDS * self._patience))

    def probe(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Try every probe, each from its own machine."""
        return self._fleet.probe_all(intent, probes, self._slower(settings), progress)

    def machine(self, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name; UsageError if there is none."""
        return self._fleet.machine(intent, name)

    def evidence(self) -> Iterator[Evidence]:
        """What every machine shows of its network. Never raises."""
        seconds = min(_LOOK_SECONDS * self._patience, SLOW_EVIDENCE_SECONDS)
        return self._fleet.evidence(Deadline(seconds))

    @property
    def _patience(self) -> int:
        return 1 if all(self._layout.accelerated.values()) else EMULATION

    def _slower(self, settings: ProbeSettings) -> ProbeSettings:
        """Emulated processors need more time for the same exchange, and bear fewer at once."""
        patience = self._patience
        return ProbeSettings(
            timeout=settings.timeout * patience,
            in_flight=max(1, settings.in_flight // patience),
        )
