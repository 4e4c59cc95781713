"""Access to a lab's system containers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines import keyring
from lab.machines.agents.control import NodeControl
from lab.machines.agents.fleet import Fleet
from lab.machines.guests import EMULATION, Guests
from lab.machines.nspawn import cgroups, preflight
from lab.machines.nspawn import holder as holders
from lab.machines.nspawn.cgroups import OUTSIDE, Hierarchies
from lab.machines.nspawn.container import DROPPED
from lab.machines.nspawn.containers import Leader, leaders
from lab.machines.nspawn.layout import NspawnLayout
from lab.machines.nspawn.system import ContainerSystem
from lab.machines.system import system_of
from lab.providers.netns.guard import call_guarded
from lab.providers.netns.holders import HolderProcess
from lab.providers.provider import LabHandle
from lab.shells.local import LocalShell
from lab.shells.shell import Reach, Shell
from lab.topology.intent import Intent

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_JOIN = """while [ "$1" != -- ]; do
    echo $$ >"$1/cgroup.procs" || exit
    shift
done
shift
exec "$@"
"""


def enter(leader: int, groups: Sequence[Path]) -> tuple[str, ...]:
    """The prefix that runs a command in a container, with the container's capabilities.

    ``leader``: process id of the container's systemd. ``groups``: the machine's control group in
    each hierarchy.
    """
    lost = ",".join(f"-{capability.removeprefix('CAP_').lower()}" for capability in DROPPED)
    return (
        *("sh", "-c", _JOIN, "sh", *(str(group / OUTSIDE) for group in groups), "--"),
        *("nsenter", "--target", str(leader)),
        *("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--"),
        *("env", "--ignore-environment", f"PATH={_PATH}", "HOME=/root", "LANG=C.UTF-8"),
        "TERM=xterm-256color",
        *("setpriv", f"--bounding-set={lost}", "--"),
    )


UP = frozenset({"running", "degraded"})
"""systemd's states of a machine that has booted."""
PROBES_A_PROCESSOR = 16
"""All machines share the host's processors: with 256 probes in flight on two processors, pods on
four nodes left 15 of 1,280 unanswered for a second, all of them UDP."""


class ContainerGuests(Guests):
    """All machines of one lab, entered from the host.

    ``holder``: the lab's holder; None while there is none.
    """

    at_once = PROBES_A_PROCESSOR * (os.cpu_count() or 1)

    def __init__(self, lab: LabHandle, layout: NspawnLayout, holder: HolderProcess | None) -> None:
        linux = [name for name in layout.machines if name not in layout.systems]
        super().__init__(lab, linux, cluster=bool(layout.bundle))
        self._layout = layout
        self._holder = holder
        self._leaders: dict[str, Leader] = {}
        self._looking = Lock()
        self._linux_shells: dict[str, LocalShell] = {}
        self._shells: dict[str, Shell] = {}
        self._hierarchies: Hierarchies | None = None

    @cached_property
    def patience(self) -> int:
        """Factor for deadlines: more than 1 if this machine's processors are emulated."""
        return EMULATION if preflight.is_emulated() else 1

    def check(self) -> None:
        """Raise BrokenError if the lab's holder has ended, and with it every machine."""
        if self._holder is not None and self._holder.gone():
            raise BrokenError(
                f"continuing lab '{self._lab.name}'",
                "its machines were ended from outside",
                "'lab up' starts them again",
            )

    def close(self) -> None:
        """Nothing to close."""

    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises BrokenError if the lab's record lacks the machine.
        """
        try:
            return self._layout.address(machine)
        except ValueError as error:
            raise BrokenError(
                f"looking for the address of machine '{machine}'",
                "the lab's record has none",
                f"'lab status {self._lab.name}' says how to bring it up again",
            ) from error

    def reach(self, machine: str) -> Reach:
        """Everything needed to log in to it by SSH."""
        return Reach(
            name=machine,
            address=self.address(machine),
            user="root",
            keyfile=keyring.client_file(self._lab),
            host_key=keyring.host_key(self._lab, machine).public,
        )

    def shell(self, machine: str) -> Shell:
        """A shell on the machine, of its system; always the same one."""
        linux = self.linux_shell(machine)
        name = self._layout.systems.get(machine)
        if name is None:
            return linux
        if machine not in self._shells:
            system = system_of(name, ContainerSystem, f"opening a shell on '{machine}'")
            self._shells[machine] = system.open_shell(machine, linux)
        return self._shells[machine]

    def linux_shell(self, machine: str) -> LocalShell:
        """A shell on the Linux that the machine boots; always the same one."""
        if machine not in self._linux_shells:
            self._linux_shells[machine] = LocalShell(
                become=False,
                inside=lambda: self._inside(machine),
                machine=f"machine '{machine}'",
                call=call_guarded,
            )
        return self._linux_shells[machine]

    def capturing(self, intent: Intent) -> Fleet:
        """The agents, those on the Linux below nodes of other systems among them."""
        others = {}
        for name, kind in self._layout.systems.items():
            system = system_of(kind, ContainerSystem, f"capturing packets on '{name}'")
            devices, shell = system.devices(intent.machine(name)), self.linux_shell(name)
            others[name] = NodeControl(name, shell, (), self._pods_token, devices)
        return Fleet({**self._controls, **others}, cluster=bool(self._pods_token))

    def boot_state(self, machine: str, deadline: Deadline) -> str:
        """State of the machine's systemd; once it is :data:`UP`, what its system still lacks.

        Raises BrokenError when it does not answer.
        """
        shell = self.linux_shell(machine)
        state = shell.run(("systemctl", "is-system-running"), deadline).stdout.strip()
        name = self._layout.systems.get(machine)
        if name is None or state not in UP:
            return state
        system = system_of(name, ContainerSystem, f"booting '{machine}'")
        return system.boot_lacks(shell, deadline) or state

    def _inside(self, machine: str) -> tuple[str, ...]:
        """The prefix that runs a command in the machine, whose systemd changes with a reboot."""
        leader = self._leader(machine)
        if leader is None:
            raise BrokenError(
                f"entering machine '{machine}'", "it is switched off", "'lab up' starts it"
            )
        return enter(leader, self._groups(machine))

    @contextmanager
    def forward(self, machine: str, port: int, seconds: float) -> Iterator[str]:
        """Yield the ``https://`` URL of a TCP port of the machine."""
        del seconds
        yield f"https://{self.address(machine)}:{port}"

    def _groups(self, machine: str) -> tuple[Path, ...]:
        """The machine's control groups.

        Raises BrokenError if they are frozen: a process that entered them would freeze too.
        """
        if self._hierarchies is None:
            assert self._holder is not None, "the machine is on"
            self._hierarchies = holders.hierarchies(self._holder.pid)
        if cgroups.is_frozen(self._hierarchies, self._lab.token, machine):
            raise BrokenError(
                f"entering machine '{machine}'", "it is suspended", "'lab up' resumes it"
            )
        return tuple(group / machine for group in self._hierarchies.groups(self._lab.token))

    def _leader(self, machine: str) -> int | None:
        with self._looking:  # concurrent threads scan /proc only once
            known = self._leaders.get(machine)
            if known is None or not known.runs():
                self._leaders = {} if self._holder is None else leaders(self._holder.pid)
                known = self._leaders.get(machine)
            return known.pid if known else None
