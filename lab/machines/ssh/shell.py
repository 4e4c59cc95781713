"""A shell on a machine over SSH: commands and files over one transport. Thread-safe."""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, os_words
from lab.machines.ssh.connection import Connection, SessionStreams, forward_port, request
from lab.machines.ssh.keys import config_path, host_block
from lab.machines.ssh.transport import (
    KEEPALIVE_SECONDS,
    SSHServer,
    SSHTransport,
    servers_to,
    timeout_of,
)
from lab.shells import programs
from lab.shells.shell import (
    ConnectionLostError,
    FatalError,
    Input,
    Reach,
    Shell,
    as_root,
    command_words,
    communicate,
    make_killable,
    shorten,
)

if TYPE_CHECKING:
    import paramiko

_PIECE = 32_768
"""The largest block that every SFTP server accepts, in bytes."""
_PRIVATE = 0o600
_HINT = "install openssh-sftp-server on it"
_SERVER = (
    "for s in /usr/lib/openssh /usr/libexec/openssh /usr/libexec /usr/lib/ssh; do "
    '[ -x "$s/sftp-server" ] && exec "$s/sftp-server"; done; exit 127'
)
"""Finds OpenSSH's SFTP server, to run it as root instead of as the subsystem's user."""


@dataclass(frozen=True, slots=True)
class SftpFiles:
    """File access on a machine over one session channel."""

    action: str
    link: SSHTransport
    channel: paramiko.Channel
    deadline: Deadline
    become: bool
    """True if the user is not root."""
    hint: str
    """The hint if no SFTP server answers."""

    def put(self, content: bytes, path: str, mode: int | None) -> None:
        """Write a temporary file beside ``path``, set its mode unless None, and rename it.

        Raises BrokenError with the machine's error; an existing file is unchanged. Raises
        DeadlineError when it takes too long; an existing file is unchanged.
        """
        directory, name = posixpath.split(path)
        draft = posixpath.join(directory, f".{name}.{secrets.token_hex(4)}")
        with self._client() as client:
            try:
                with client.open(draft, "wbx") as file:
                    if mode is not None:
                        file.chmod(_PRIVATE)
                    file.set_pipelined(pipelined=True)
                    for begin in range(0, len(content), _PIECE):
                        self._in_time(f"{begin:,} of {len(content):,} bytes")
                        file.write(content[begin : begin + _PIECE])
                    if mode is not None:
                        file.chmod(mode)
                client.posix_rename(draft, path)
            except BaseException:
                with suppress(Exception):  # the connection may be lost; the first error counts
                    client.remove(draft)
                raise

    def get(self, path: str) -> bytes:
        """Read the file.

        Raises BrokenError with the machine's error. Raises DeadlineError when it takes too long.
        """
        content = bytearray()
        with self._client() as client, client.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                content += piece
                self._in_time(f"{len(content):,} bytes")
        return bytes(content)

    def look(self) -> None:
        """Check that SFTP works. Raises as :meth:`get`."""
        with self._client() as client:
            client.normalize(".")

    def remove(self, path: str) -> None:
        """Remove the file. Raises as :meth:`get`."""
        with self._client() as client:
            client.remove(path)

    @contextmanager
    def _client(self) -> Iterator[paramiko.SFTPClient]:
        from paramiko import SFTPClient, SSHException  # noqa: PLC0415  slow to import
        from paramiko.sftp import SFTPError  # noqa: PLC0415  the same

        self.channel.settimeout(timeout_of(self.deadline))
        line = shlex.join(as_root(("sh", "-c", _SERVER), become=True))

        def ask(channel: paramiko.Channel) -> None:
            channel.exec_command(line) if self.become else channel.invoke_subsystem("sftp")

        try:
            request(self.action, self.link, self.channel, ask, self.deadline)
            with SFTPClient(self.channel) as client:
                yield client
        except TimeoutError as error:
            raise self._late("the SFTP server did not answer") from error
        except (SSHException, SFTPError, EOFError) as error:
            if not self.link.alive():
                raise self.link.lost(self.action) from error
            raise BrokenError(
                self.action,
                f"no SFTP server answers there ({error or 'it ended at once'})",
                self.hint,
            ) from error
        except OSError as error:
            if not self.link.alive():
                raise self.link.lost(self.action) from error
            raise BrokenError(self.action, os_words(error)) from error

    def _in_time(self, done: str) -> None:
        if self.deadline.left() == 0.0:
            raise self._late(done)

    def _late(self, last: str) -> DeadlineError:
        words = f"not done within {self.deadline.seconds:g} s; last seen: {last}"
        return DeadlineError(self.action, words)


ROOT = "root"
TRY_SECONDS = 30.0
"""Time limit for one attempt while waiting for a machine."""
WHOLE_SECONDS = 1.0
"""If the deadline cuts an attempt shorter than this, the previous attempt's error is reported."""
AGAIN_SECONDS = 0.25
"""Interval between two attempts."""
ATTACH_SECONDS = 30.0
"""For connecting, before the terminal is handed over."""
_CLIENT_FAILED = 255
"""Exit code of OpenSSH's client if the client itself failed."""
_SUDO = re.compile(r"sudo: a password is required|sudo: (command )?not found")


class SshShell(Shell):
    """A :class:`~lab.shells.shell.Shell` over SSH, always acting as root.

    A user other than root becomes root with ``sudo -n``. The connection is opened on first use and
    reopened if it has died; a command that was running is never repeated. When the connection
    breaks, the command's process group on the machine is killed.

    ``reach``: the machine, or the SSH servers on the path to it; the machine's own is last.
    """

    def __init__(self, reach: Reach | tuple[SSHServer, ...]) -> None:
        servers = servers_to(reach) if isinstance(reach, Reach) else reach
        self._servers = servers
        self._server = servers[-1]
        self._become = self._server.user != ROOT
        self._connection = Connection(servers)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file atomically; ``mode`` as in chmod(2). Replaces a symbolic link."""
        with self._files(f"writing '{path}' on '{self._server.name}'", deadline) as files:
            files.put(content, path, mode)

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        with self._files(f"reading '{path}' of '{self._server.name}'", deadline) as files:
            return files.get(path)

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine runs a command.

        Raises DeadlineError with the outcome of the last attempt. Raises HostKeyError or
        KeyFileError at once.
        """
        action = f"waiting for '{self._server.name}' ({self._server.address}) to accept commands"
        wait_until_ready(action, self._attempt, deadline, AGAIN_SECONDS)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a login shell if ``command`` is empty.

        Without a terminal, the three streams are passed through.
        """
        if command:
            line: str | None = shlex.join(as_root(command, become=self._become))
        else:
            line = "sudo -n -i" if self._become else None
        return attach(self._connection, self._servers, shlex.join(command), line)

    def forward(self, address: tuple[str, int], seconds: float) -> AbstractContextManager[int]:
        """Forward a local port to an address as seen from the machine.

        ``address``: host and port; ``("127.0.0.1", 6443)`` is on the machine itself. ``seconds``:
        time limit for opening each connection.
        """
        action = f"reaching {address[0]} port {address[1]} through '{self._server.name}'"
        return forward_port(lambda: self._connection.dial(action, address, Deadline(seconds)))

    def close(self) -> None:
        """Close the connection; current users get ConnectionLostError, the next use reconnects."""
        self._connection.close()

    def _files(self, action: str, deadline: Deadline) -> AbstractContextManager[SftpFiles]:
        return sftp(self._connection, action, deadline, become=self._become)

    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: Input,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        action = f"running {command_words(command)} on '{self._server.name}'"
        line = shlex.join(make_killable(command, len(stdin), become=self._become))
        with self._connection.session(action, deadline) as (link, channel):
            request(action, link, channel, lambda session: session.exec_command(line), deadline)
            streams = SessionStreams(action, link, channel)
            code, text = communicate(action, streams, stdin, deadline, out)
        if self._become and code and _SUDO.search(text):
            raise BrokenError(
                action,
                f"user '{self._server.user}' may not become root there: {text.strip()}",
                f"allow it: '{self._server.user} ALL=(ALL) NOPASSWD: ALL' in /etc/sudoers.d, "
                "or log in as root",
            )
        return code, text

    def _attempt(self, deadline: Deadline) -> str:
        """Why a command cannot run now; empty if it can."""
        try:
            done = self.run(("true",), deadline)
        except FatalError:
            raise
        except BrokenError as error:
            return error.happened
        return f"'true' ended with {done.code}: {done.stderr.strip()}" if done.code else ""


def wait_until_ready(
    action: str, attempt: Callable[[Deadline], str], deadline: Deadline, every: float
) -> None:
    """Repeat an attempt until it succeeds.

    ``action``: the operation, for messages. ``attempt``: makes one attempt within the given
    deadline; returns why it failed, or an empty string. ``deadline``: for all attempts. ``every``:
    seconds between two attempts.

    Raises DeadlineError with the outcome of the last attempt that had enough time.
    """
    last = ""

    def look() -> str:
        nonlocal last
        own = Deadline(min(deadline.left(), TRY_SECONDS))
        why = attempt(own)
        if not why or not last or own.left() > 0.0 or own.seconds >= WHOLE_SECONDS:
            last = why
        return last

    hint = "see its console"
    deadline.wait(action, look, until=lambda why: not why, every=every, hint=hint)


def attach(
    connection: Connection, servers: Sequence[SSHServer], shown: str, line: str | None
) -> int:
    """Run a command line or a login shell on this terminal with OpenSSH's client; the exit code.

    Raises BrokenError when the machine is unreachable, or the connection is lost.
    """
    name = servers[-1].name
    action = f"running '{shorten(shown) or 'a shell'}' on '{name}'"
    programs.need(action, "ssh", "setpriv")
    connection.transport(action, Deadline(ATTACH_SECONDS))  # our errors say more than the client's
    with ExitStack() as stack:
        known, config, log = (stack.enter_context(programs.unnamed_file()) for _ in range(3))
        known.write_text(
            "".join(
                f"hop{at} {key}\n"
                for at, server in enumerate(servers)
                for key in server.host_keys or ()
            )
        )
        config.write_text(_client_config(servers, known))
        terminal = "-tt" if os.isatty(0) and os.isatty(1) else "-T"
        ending = ("setpriv", "--pdeathsig", "TERM", "--")  # ssh restores the terminal
        command = (*ending, "ssh", "-F", config, "-E", log, terminal, f"hop{len(servers) - 1}")
        code = subprocess.call((*command, *((line,) if line else ())))  # noqa: S603  the user's own
        own = f"Exit status {code}" in log.read_text(encoding="utf-8", errors="replace")
    if code == _CLIENT_FAILED and not own:
        words = f"the connection to '{name}' was lost"
        raise ConnectionLostError(action, words, "check that the machine is running, then repeat")
    return code if code >= 0 else 128 - code


def _client_config(servers: Sequence[SSHServer], known: Path) -> str:
    """The OpenSSH configuration for the path to a machine; accepts only the known keys."""
    blocks = []
    for at, server in enumerate(servers):
        lines = {
            "Host": f"hop{at}",
            "HostName": server.host,
            "HostKeyAlias": f"hop{at}",
            "Port": str(server.port),
            "User": server.user,
            "UserKnownHostsFile": "/dev/null" if server.host_keys is None else str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "no" if server.host_keys is None else "yes",
            "ServerAliveInterval": str(KEEPALIVE_SECONDS),
            "BatchMode": "yes",
            # The log shows whether the command itself exited with 255.
            "LogLevel": "DEBUG1" if server is servers[-1] else "ERROR",
        }
        if server.keyfile:
            lines |= {"IdentityFile": config_path(server.keyfile), "IdentitiesOnly": "yes"}
        if at:
            lines["ProxyJump"] = f"hop{at - 1}"
        blocks.append(host_block(lines.items()))
    return "".join(blocks)


@contextmanager
def sftp(
    connection: Connection, action: str, deadline: Deadline, *, become: bool, hint: str = _HINT
) -> Iterator[SftpFiles]:
    """File access on a machine, for one operation."""
    with connection.session(action, deadline) as (link, channel):
        yield SftpFiles(action, link, channel, deadline, become, hint)
