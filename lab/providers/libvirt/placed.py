"""A lab's machines where they were placed: their domains, consoles, screens and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.providers.libvirt import bring_up, connection, domains, machines, pictures, terminal
from lab.providers.libvirt.boots import in_parallel
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import Layout
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    import libvirt


class Placed:
    """The machines of a lab.

    Parameters
    ----------
    lab
        Whose they are.
    decided
        On which hypervisor each is.
    hosts
        Those hypervisors, by name.

    """

    def __init__(self, lab: LabHandle, decided: Layout, hosts: Mapping[str, Host]) -> None:
        self._lab = lab
        self._decided = decided
        self._hosts = hosts

    def console(self, name: str) -> int:
        """Join this terminal to the machine's serial console until Ctrl-]; the exit code."""
        connection.hear_events()
        return terminal.join(self._domain(name))

    def console_log(self, name: str) -> str:
        """All that the serial console has said since the machine was made."""
        return machines.console_text(self._host(name), self._lab, name)

    def screenshot(self, name: str) -> bytes:
        """What its screen shows now, as PNG."""
        with self._host(name).told(f"taking a picture of the screen of '{name}'"):
            return pictures.png(domains.screenshot(self._domain(name)))

    def suspend(self) -> tuple[str, ...]:
        """Save every machine's memory to disk and stop it; the names of those that ran."""
        homes = self._decided.hypervisors()
        jobs = {
            home: {machine: self._saving(machine) for machine in self._decided.on(home)}
            for home in homes
        }
        limits = {home: self._hosts[home].threads for home in homes}
        done = in_parallel(jobs, limits, Deadline(bring_up.ALL_SECONDS))
        return tuple(machine for machine, ran in done.items() if ran)

    def _saving(self, name: str) -> Callable[[], bool]:
        def save() -> bool:
            with self._host(name).told(f"saving machine '{name}'"):
                return domains.save(self._domain(name))

        return save

    def _host(self, name: str) -> Host:
        home = self._decided.machines.get(name)
        if home is None:
            raise UsageError(
                f"looking for '{name}' in lab '{self._lab.name}'",
                "there is no machine of that name",
                f"one of {', '.join(self._decided.machines)}",
            )
        return self._hosts[home]

    def _domain(self, name: str) -> libvirt.virDomain:
        host = self._host(name)
        with host.told(f"looking for machine '{name}'"):
            found = domains.find(host.connected, self._lab, name)
        if found is None:
            raise BrokenError(
                f"looking for machine '{name}'", "its domain is gone", f"lab up {self._lab.name}"
            )
        return found[0]
