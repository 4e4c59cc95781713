"""A shell on a machine, whatever carries it: the seam that providers and clusters use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab._deadline import Deadline


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Jump:
    """An SSH host to go through: the hypervisor behind whose NAT a guest stands."""

    host: str
    port: int = 22
    user: str = "root"
    keyfile: Path | None = None
    """None for the user's own keys and agent."""
    known_hosts: Path | None = None
    """None for the user's own known hosts; an unknown host is refused either way."""
    no_verify: bool = False
    """As ``no_verify=1`` in a libvirt URI: the host's key is not checked."""


@dataclass(frozen=True, slots=True)
class Reach:
    """All that is needed to get a shell on one guest."""

    name: str
    """The machine's name in the lab, for messages."""
    address: str
    user: str
    keyfile: Path
    """The lab's private key (OpenSSH format, mode 0600)."""
    host_key: str
    """The guest's public key, ``ssh-ed25519 AAAA...``: pinned, anything else is refused."""
    port: int = 22
    jump: Jump | None = None


class GuestShell(Protocol):
    """A machine that takes commands; one connection, opened when first used, used by threads."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end.

        Raises
        ------
        DeadlineError
            When it has not ended in time.
        BrokenError
            When the machine cannot be reached, with what was tried last; a host key that is
            not the pinned one is said as such and never retried.

        """

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As ``run``, but every line of standard output is told as it comes (and not kept)."""

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file on the machine, whole or not at all."""

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file of the machine.

        Raises
        ------
        BrokenError
            When there is none, or it cannot be read.

        """

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine takes a command.

        Raises
        ------
        DeadlineError
            With what the last try has met (``"connection refused"``, ``"no banner"``).

        """

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is a login shell."""

    def close(self) -> None:
        """Give the connection up. Safe to repeat."""
