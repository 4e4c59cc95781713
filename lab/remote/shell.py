"""A shell on a machine, whatever carries it: the seam that providers and clusters use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import BrokenError


class UnreachableError(BrokenError):
    """The machine was not reached this time; ``happened`` says how far the attempt got."""


class HostKeyError(BrokenError):
    """The machine shows another key than it must. Retrying does not help."""


class ConnectionLostError(BrokenError):
    """The connection broke while it was in use."""


class KeyFileError(BrokenError):
    """The private key file cannot be used. Retrying does not help."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Jump:
    """An SSH host to jump through: the hypervisor whose NAT hides a machine."""

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
    """All that is needed to get a shell on one machine."""

    name: str
    """The machine's name in the lab, for messages."""
    address: str
    user: str
    keyfile: Path
    """The lab's private key (OpenSSH format, mode 0600)."""
    host_key: str
    """The machine's public key, ``ssh-ed25519 AAAA...``: pinned, anything else is refused."""
    port: int = 22
    jump: Jump | None = None


class Shell(Protocol):
    """A machine that takes commands; one connection, opened when first used, used by threads."""

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end.

        Raises
        ------
        DeadlineError
            When it has not ended in time.
        BrokenError
            When the machine cannot be reached, with the last attempt; a host key other than
            the pinned one is reported as such and never retried.

        """

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As ``run``, but pass on each line of standard output as it comes, and keep none."""

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
            With the outcome of the last attempt (``"connection refused"``, ``"no banner"``).

        """

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is a login shell."""

    def close(self) -> None:
        """Close the connection. Safe to repeat."""


WINRM_TLS_PORT = 5986


@dataclass(frozen=True, slots=True)
class WindowsReach:
    """A Windows machine: commands by WinRM, files by SSH."""

    ssh: Reach
    """Its OpenSSH: address, user, lab's key, pinned host key, and the host to jump through."""
    password: str = field(repr=False)
    """Of the same user. Secret."""
    certificate: str = ""
    """SHA-256 of the certificate (DER) that WinRM must show, 64 hex digits: pinned, and anything
    else is refused."""
    port: int = WINRM_TLS_PORT
