"""Pods of a lab's cluster as places to run commands in: kubectl on a control plane enters them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab.cluster.labels import NAMESPACE
from lab.cluster.linux.api import ADMIN
from lab.guests.shell import Completed, GuestShell


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """One probe pod."""

    name: str
    lab: str
    plane: str
    """The control plane that is asked."""
    shell: GuestShell
    """On it."""

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command to its end; see :class:`lab.providers.provider.Machine`."""
        seconds = str(math.ceil(deadline.left()) + 1)
        words = ("timeout", "-s", "KILL", seconds, *self._words("exec", command))
        return self.shell.run(words, deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is a shell."""
        return self.shell.attach(self._words("exec", command or ("sh",), "-it"))

    def command_line(self, command: Sequence[str]) -> str:
        """The shell line that does the same by hand."""
        return shlex.join(
            ("lab", "ssh", self.lab, self.plane, "--", *self._words("exec", command or ("sh",)))
        )

    def _words(self, verb: str, command: Sequence[str], *flags: str) -> tuple[str, ...]:
        head = ("kubectl", f"--kubeconfig={ADMIN}", f"--namespace={NAMESPACE}", verb)
        return (*head, *flags, self.name, "--", *command)
