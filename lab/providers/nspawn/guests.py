"""The system containers of a lab, from inside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from lab._errors import BrokenError
from lab.guests.local import LocalShell
from lab.guests.shell import Reach
from lab.providers.machines import keyring
from lab.providers.machines.guests import EMULATION, Guests
from lab.providers.nspawn import holder as holders
from lab.providers.nspawn import preflight
from lab.providers.nspawn.cgroups import Hierarchies
from lab.providers.nspawn.containers import Leader, leaders
from lab.providers.nspawn.layout import Layout
from lab.providers.nspawn.shell import container_shell
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    from lab.guests.windows_shell import WindowsShell

PROBES_A_PROCESSOR = 16
"""All machines share this one's processors: with 256 at once on two, pods of four nodes left 15 of
1,280 probes unanswered for a second, all over UDP."""


class ContainerGuests(Guests):
    """Every machine of one lab, entered from this one.

    Parameters
    ----------
    holder
        Process id of the lab's holder; None while there is none.

    """

    at_once = PROBES_A_PROCESSOR * (os.cpu_count() or 1)

    def __init__(self, lab: LabHandle, layout: Layout, holder: int | None) -> None:
        super().__init__(lab, layout.machines, cluster=bool(layout.bundle))
        self._layout = layout
        self._holder = holder
        self._leaders: dict[str, Leader] = {}
        self._looking = Lock()
        self._shells: dict[str, LocalShell] = {}
        self._hierarchies: Hierarchies | None = None

    @cached_property
    def patience(self) -> int:
        """By how much a deadline is longer than on hardware."""
        return EMULATION if preflight.emulated() else 1

    def close(self) -> None:
        """Nothing is kept open."""

    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises
        ------
        BrokenError
            If the lab's record has none: it was made for other machines.

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
        """All that is needed to log in to it by SSH."""
        return Reach(
            name=machine,
            address=self.address(machine),
            user="root",
            keyfile=keyring.client_file(self._lab),
            host_key=keyring.host_key(self._lab, machine).public,
        )

    def shell(self, machine: str) -> LocalShell:
        """A shell on the machine; always the same one."""
        if machine not in self._shells:
            self._shells[machine] = container_shell(
                machine, lambda: self._leader(machine), lambda: self._groups(machine)
            )
        return self._shells[machine]

    def windows_shell(self, machine: str) -> WindowsShell:
        """Refuse: no system container runs Windows."""
        raise BrokenError(
            f"getting a shell on machine '{machine}'", "system containers run Linux alone"
        )

    @contextmanager
    def forward(self, machine: str, port: int, seconds: float) -> Iterator[str]:
        """``https://`` address at which a TCP port of the machine answers inside the block."""
        del seconds
        yield f"https://{self.address(machine)}:{port}"

    def _groups(self, machine: str) -> tuple[Path, ...]:
        if self._hierarchies is None:
            assert self._holder is not None, "the machine is on"
            self._hierarchies = holders.hierarchies(self._holder)
        return tuple(group / machine for group in self._hierarchies.groups(self._lab.token))

    def _leader(self, machine: str) -> int | None:
        with self._looking:  # threads that ask at once look through /proc once
            known = self._leaders.get(machine)
            if known is None or not known.runs():
                self._leaders = {} if self._holder is None else leaders(self._holder)
                known = self._leaders.get(machine)
            return known.pid if known else None
