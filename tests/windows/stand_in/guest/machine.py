"""The stand-in's machine: COM1, screen, power, CDs, network, and what is kept on drive C."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from double.drives import named

FOLDER = Path("/c/stand-in")
CACHED = Path("/c/Windows/Panther/unattend.xml")
"""Setup's copy of the answer file, which takes precedence over media until it is removed."""
SECRET = FOLDER / "secret"
"""The administrator's password, instead of Windows' account database."""
MODULES = Path("/programs/modules")
KEY_POWER = 116
_EVENT = struct.Struct("llHHi")
_LOCK = threading.Lock()
_EARLY: list[str] = []
"""Events before there is a drive C."""

Drives = Mapping[str, Path]
"""Letter to mount point."""


class StopError(Exception):
    """Setup shows an error and waits for a person."""


class RestartError(Exception):
    """The system restarts here."""


@dataclass(frozen=True)
class State:
    r"""The state of one disk between two starts: ``C:\stand-in\state.json``."""

    stage: str
    """``specialize``, ``oobe``, ``installed``, ``generalized``."""
    drivers: Sequence[str]
    """Names of drivers installed by Setup, in lower case."""
    script: str = "bootstrap.ps1"
    """The script of the first logon; ``clone.ps1`` on a clone."""
    computer_name: str = ""
    sid: str = ""
    """The machine's SID, which changes after generalizing."""
    steps: Sequence[str] = ()
    """Steps done over a shell."""

    def with_(self, **changes: Any) -> State:
        """Return a changed copy, and save it."""
        made = replace(self, **changes)
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "state.json").write_text(json.dumps(asdict(made), indent=1))
        return made


def load() -> State:
    return State(**json.loads((FOLDER / "state.json").read_text()))


def record(event: str, **facts: Any) -> None:
    r"""Add an event to ``C:\stand-in\record.json``, a line of JSON for tests. No secrets."""
    with _LOCK:
        _EARLY.append(json.dumps({"event": event, **facts}) + "\n")
        if FOLDER.exists():
            with (FOLDER / "record.json").open("a") as file:
                file.writelines(_EARLY)
            _EARLY.clear()


# ---- COM1, screen and power


def say(line: str) -> None:
    """Write a line to COM1, like ``echo`` of cmd.exe; the terminal adds the carriage return."""
    Path("/dev/ttyS0").write_bytes(f"{line}\n".encode("ascii", errors="replace"))


def show(line: str) -> None:
    """Write a line to the screen."""
    Path("/dev/tty0").write_bytes(f"{line}\r\n".encode())


def stop(why: str) -> NoReturn:
    """Show the error screen, and halt."""
    say(f"stand-in: {why}")
    show(f"\033[2J\033[H\033[44mWindows Setup (a stand-in, not Windows)\r\n\r\n{why}\r\n\r\n[ OK ]")
    busybox("sync")
    while True:
        time.sleep(3600)


def power(verb: str) -> NoReturn:
    """Write everything to the disk; then ``reboot`` or ``poweroff``."""
    busybox("sync")
    busybox("mount", "-o", "remount,ro", "/c")
    busybox(verb, "-f")
    while True:
        time.sleep(3600)


def watch_power_button() -> None:
    """Shut down when the power button is pressed, like Windows."""
    for path in sorted(Path("/sys/class/input").glob("event*")):
        name = path / "device/name"
        if name.exists() and "Power Button" in name.read_text():
            with Path("/dev/input", path.name).open("rb", buffering=0) as events:
                while event := events.read(_EVENT.size):
                    if _EVENT.unpack(event)[2:] == (1, KEY_POWER, 1):
                        power("poweroff")


def busybox(*arguments: str) -> bool:
    """Run one of busybox's programs; whether it succeeded."""
    command = ["/bin/busybox", *arguments]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def start_drivers(names: Sequence[str]) -> None:
    """Load the equivalent Linux modules, which may be loaded already."""
    for name, modules in json.loads((MODULES / "drivers.json").read_text()).items():
        if name.lower() in names:
            for module in modules:
                busybox("insmod", str(MODULES / module))


# ---- CDs, with letters from D on in the order of their ports; names ignore case


def mounted() -> Drives:
    """Mount every CD."""
    found = {}
    for letter, device in zip("DEFGHIJ", sorted(Path("/sys/block").glob("sr*")), strict=False):
        place = Path("/media", device.name)
        place.mkdir(parents=True, exist_ok=True)
        for kind, options in (("udf", "ro"), ("iso9660", "ro,norock")):
            command = ("mount", "-t", kind, "-o", options, f"/dev/{device.name}", str(place))
            if place.is_mount() or busybox(*command):
                found[letter] = place
                break
    return found


def resolve(drives: Drives, path: str) -> Path | None:
    r"""The local path of ``E:\viostor\2k22\amd64``; None if it does not exist."""
    letter, _, rest = path.partition(":")
    place = drives.get(letter.upper())
    for part in filter(None, rest.replace("\\", "/").split("/")):
        place = named(place, part) if place else None
    return place


def in_roots(drives: Drives, name: str) -> list[Path]:
    """Files and folders with this name in the drives' roots, by letter."""
    drives_named = (named(drives[letter], name) for letter in sorted(drives))
    return [path for path in drives_named if path is not None]


def roots(drives: Drives) -> list[dict[str, bytes]]:
    """The XML files in the drives' roots, by letter: lower-case name to content."""
    return [
        {path.name.lower(): path.read_bytes() for path in drives[letter].glob("*.[xX][mM][lL]")}
        for letter in sorted(drives)
    ]


# ---- network


def cards() -> list[tuple[str, str]]:
    """Name and MAC address of every card."""
    return [
        (path.name, (path / "address").read_text().strip())
        for path in sorted(Path("/sys/class/net").iterdir())
        if (path / "device").exists()
    ]


def set_up_network(name: str, wanted: Sequence[dict[str, Any]] | None) -> None:
    """Set the configured addresses of cards; without any, use DHCP for all.

    Windows would use DHCP for a card that is not configured too; it is not needed here.
    """
    socket.sethostname(name)
    busybox("ip", "link", "set", "lo", "up")
    by_mac = {card["mac"].lower(): card for card in wanted or ()}
    for device, mac in cards():
        if wanted is None or mac in by_mac:
            _set_up_card(device, by_mac.get(mac, {"name": device}), name)


def _set_up_card(device: str, card: dict[str, Any], computer: str) -> None:
    name = card["name"]
    if name != device:
        busybox("ip", "link", "set", device, "down")
        busybox("ip", "link", "set", device, "name", name)
    if card.get("mtu"):
        busybox("ip", "link", "set", name, "mtu", str(card["mtu"]))
    busybox("ip", "link", "set", name, "up")
    if not card.get("address"):
        script, computer = str(Path(__file__).with_name("lease.sh")), f"hostname:{computer}"
        command = ["/bin/busybox", "udhcpc", "-f", "-i", name, "-s", script, "-x", computer]
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return
    busybox("ip", "address", "flush", "dev", name)
    busybox("ip", "address", "add", card["address"], "dev", name)
    if card.get("gateway"):
        busybox("ip", "route", "replace", "default", "via", card["gateway"], "dev", name)
