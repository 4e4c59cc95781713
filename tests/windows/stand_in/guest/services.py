"""WinRM and SSH of the installed system: the double, with this machine's keys."""

from __future__ import annotations

import threading
from pathlib import Path

from double.certificates import make_certificate, make_host_key
from double.shells import Shells
from double.sshd import Sshd, SshService
from double.wsman import Service, WsMan
from stand_in.guest.record import Record
from stand_in.guest.shell import Shell
from stand_in.guest.state import FOLDER, SECRET, State

KEYS = FOLDER / "keys"
AUTHORIZED = KEYS / "authorized_keys"
HOST_KEY = KEYS / "host_key"
CERTIFICATE, PRIVATE = KEYS / "certificate.pem", KEYS / "private.pem"
DRIVES = Path("/drives")
USER = "Administrator"


def new_keys(computer_name: str, authorized: str, address: str) -> tuple[str, str]:
    """Create new keys; return the host key and the certificate's SHA-256."""
    KEYS.mkdir(parents=True, exist_ok=True)
    for path in KEYS.iterdir():
        path.unlink()
    AUTHORIZED.write_text(authorized.strip() + "\n")
    key = make_host_key(HOST_KEY)
    names = {"address": address} if address else {}
    return " ".join(key.split()[:2]), make_certificate(CERTIFICATE, PRIVATE, computer_name, **names)


def start(state: State, record: Record) -> None:
    """Listen on 22 and 5986 until the machine shuts down."""
    DRIVES.mkdir(exist_ok=True)
    (DRIVES / "C").symlink_to("/c")
    Path("/c/hybridlab").mkdir(exist_ok=True)
    password = SECRET.read_text(encoding="utf-8")
    shell = Shell(state, record)
    service = Service(USER, password, Shells(shell))
    winrm = WsMan(service, "0.0.0.0", 5986, CERTIFICATE, PRIVATE)
    ssh = Sshd(SshService(USER, HOST_KEY, AUTHORIZED, DRIVES, shell), "0.0.0.0", 22)
    shell.closing = lambda: (winrm.stop(), ssh.stop())
    winrm.start()
    ssh.start()


def forever() -> None:
    threading.Event().wait()
