"""A real sshd with its config, keys and port in a directory, ended by its pid."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from lab._deadline import Deadline
from lab.machines.ssh.keys import KeyPair, make_key_pair
from lab.shells.shell import Jump, Reach

PRIVILEGE_SEPARATION = Path("/run/sshd")
CONFIG = """
Port {port}
ListenAddress {address}
HostKey {directory}/host_key
PidFile none
AuthorizedKeysFile {directory}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
MaxStartups 100
LogLevel VERBOSE
SetEnv HOME={directory}
"""


@cache
def settings_of_newer() -> str:
    """From OpenSSH 9.8 a server refuses clients for a while whose logins have failed."""
    setting = "PerSourcePenalties no"
    known = ["/usr/sbin/sshd", "-G", "-f", "/dev/null", "-o", setting]
    return (
        setting if subprocess.run(known, capture_output=True, check=False).returncode == 0 else ""
    )


def free_port() -> int:
    """A free port below the range of ephemeral ports."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_key(path: Path, pair: KeyPair) -> Path:
    path.touch(mode=0o600)
    path.write_text(pair.private)
    return path


class Sshd:
    """One server, which can be started and ended repeatedly."""

    def __init__(
        self,
        directory: Path,
        address: str = "127.0.0.1",
        inside: Sequence[str] = (),
        more: str = "",
    ) -> None:
        self.directory, self.address, self.inside = directory, address, tuple(inside)
        self.port = free_port()
        self.host, self.client = make_key_pair("host"), make_key_pair("client")
        directory.mkdir(parents=True)
        write_key(directory / "host_key", self.host)
        self.keyfile = write_key(directory / "client_key", self.client)
        (directory / "authorized_keys").write_text(self.client.public)
        self.config = directory / "sshd_config"
        self.config.write_text(
            CONFIG.format(port=self.port, address=address, directory=directory)
            + f"{settings_of_newer()}\n{more}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
        log = (self.directory / "log").open("ab")
        command = [*self.inside, "/usr/sbin/sshd", "-D", "-e", "-f", str(self.config)]
        self.process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        Deadline(10).wait("waiting for sshd", lambda: "Server listening" in self.log())

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def connections(self) -> list[int]:
        """Process ids of the open connections."""
        assert self.process
        return children(self.process.pid)

    def cut(self) -> None:
        """End every connection, and go on listening."""
        for pid in self.connections():
            for child in (pid, *children(pid)):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def logins(self) -> int:
        return self.log().count("Accepted publickey")

    def end(self) -> None:
        """End the server, and every connection with it."""
        if self.process is None:
            return
        self.cut()
        self.process.terminate()
        self.process.wait(10)
        self.process = None
        (self.directory / "log").write_text("")

    def reach(self, **changes: object) -> Reach:
        facts: dict[str, object] = {
            "name": "guest1",
            "address": self.address,
            "user": "root",
            "keyfile": self.keyfile,
            "host_key": self.host.public.strip(),
            "port": self.port,
        }
        return Reach(**{**facts, **changes})  # type: ignore[arg-type]

    def jump(self, known_hosts: Path) -> Jump:
        known_hosts.write_text(f"[{self.address}]:{self.port} {self.host.public}")
        return Jump(self.address, self.port, "root", self.keyfile, known_hosts)


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(word) for word in text.split()]
