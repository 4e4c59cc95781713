"""A guest: the WinRM and SSH services of one machine, with one user."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .certificates import make_certificate, make_host_key
from .script import Script
from .shells import Shells
from .sshd import Sshd, SshService
from .wsman import Service, WsMan

USER = "Administrator"
PASSWORD = "pass:word <&> \u00e9\u20ac"


@dataclass
class Guest:
    """Both services on free ports, with their own keys, in a test's directory."""

    directory: Path
    script: Script = field(default_factory=Script)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.root = self.directory / "drives"
        (self.root / "C" / "hybridlab").mkdir(parents=True)
        certificate, key = self.directory / "certificate.pem", self.directory / "key.pem"
        self.certificate = make_certificate(certificate, key)
        self.host_key = make_host_key(self.directory / "host_key")
        self.keyfile = self.directory / "client_key"
        authorized = self.directory / "authorized_keys"
        authorized.write_text(f"{make_host_key(self.keyfile)} client\n")
        self.shells = Shells(self.script, self.root)
        self.service = Service(USER, PASSWORD, self.shells)
        self.winrm = WsMan(self.service, "127.0.0.1", 0, certificate, key)
        self.ssh_service = SshService(
            USER, self.directory / "host_key", authorized, self.root, self.script
        )
        self.ssh = Sshd(self.ssh_service)

    def start(self) -> None:
        self.winrm.start()
        self.ssh.start()

    def stop(self) -> None:
        self.winrm.stop()
        self.ssh.stop()
