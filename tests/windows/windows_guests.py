"""Doubles of Windows guests, and shells on them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path

from double.certificates import make_certificate, make_host_key
from double.script import Script
from double.shells import Shells
from double.sshd import Sshd, SshService
from double.wsman import Service, Trouble, WsMan

from lab.shells.shell import Reach, WindowsReach

USER = "Administrator"
PASSWORD = "pass:word <&> \u00e9\u20ac"


@dataclass
class Guest:
    """WinRM and SSH of one machine and user, on free ports, with keys in a test's directory."""

    directory: Path
    script: Script = field(default_factory=Script)

    def __post_init__(self) -> None:
        self.root = self.directory / "drives"
        self.folder = self.root / "C" / "hybridlab"
        self.folder.mkdir(parents=True)
        certificate, key = self.directory / "certificate.pem", self.directory / "key.pem"
        self.certificate = make_certificate(certificate, key)
        self.host_key = make_host_key(self.directory / "host_key")
        self.keyfile = self.directory / "client_key"
        self.authorized = self.directory / "authorized_keys"
        self.authorized.write_text(f"{make_host_key(self.keyfile)} client\n")
        self.shells = Shells(self.script, self.root)
        self.service = Service(USER, PASSWORD, self.shells)
        self.winrm = WsMan(self.service, "127.0.0.1", 0, certificate, key)
        own = self.directory / "host_key", self.authorized, self.root
        self.ssh_service = SshService(USER, *own, self.script)
        self.ssh = Sshd(self.ssh_service)

    def start(self) -> None:
        self.winrm.start()
        self.ssh.start()

    def stop(self) -> None:
        self.winrm.stop()
        self.ssh.stop()

    def lines(self) -> list[str]:
        return [request.line for request in self.script.asked]

    def trouble(self, action: str, kind: str, **more: object) -> None:
        """Let this action fail once, at its next request."""
        self.service.troubles.append(Trouble(action, kind, **more))  # type: ignore[arg-type]

    def reach(self, **changes: object) -> WindowsReach:
        """Access to it; ``password``, ``certificate`` and ``port`` are for WinRM."""
        own = {"password": PASSWORD, "certificate": self.certificate, "port": self.winrm.port}
        own |= {name: changes.pop(name) for name in own.keys() & changes}
        facts = {"keyfile": self.keyfile, "host_key": self.host_key, "port": self.ssh.port}
        ssh = {"name": "win1", "address": "127.0.0.1", "user": USER} | facts | changes
        return WindowsReach(Reach(**ssh), **own)  # type: ignore[arg-type]


def encoded(script: str) -> str:
    return base64.b64encode(script.encode("utf-16-le")).decode()
