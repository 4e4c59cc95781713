"""libvirt domains: states, drives, screens and serial consoles."""

from __future__ import annotations

import os
import re
import select
import struct
import sys
import termios
import tty
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree as ET

from lab._errors import UsageError
from lab._log import say
from lab.machines.libvirt import connection, documents, ownership, storage
from lab.machines.libvirt.ownership import Owner
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    import libvirt

State = Literal["running", "off", "saved", "paused", "full", "crashed"]

WORDS = {
    "running": "running",
    "off": "shut off",
    "saved": "suspended",
    "paused": "paused",
    "full": "paused: its hypervisor's disk is full",
    "crashed": "crashed",
}
"""Each state in words."""


def find(
    connected: libvirt.virConnect, lab: LabHandle, machine: str
) -> tuple[libvirt.virDomain, Owner] | None:
    """The domain of a lab's machine. Raises BrokenError if a foreign domain has its name."""
    name = ownership.domain_name(lab, machine)
    domain = connection.find(connected.lookupByName, name, "VIR_ERR_NO_DOMAIN")
    if domain is None:
        return None
    return domain, ownership.require_owner(domain.XMLDesc(), lab, f"domain '{name}'")


def state(domain: libvirt.virDomain) -> State:
    """The domain's state.

    ``saved`` is off with its memory on disk; ``full`` is paused by QEMU, because the file system
    of a disk is full.
    """
    library = connection.load()
    number, why = domain.state()
    if number == library.VIR_DOMAIN_RUNNING:
        return "running"
    if number == library.VIR_DOMAIN_PAUSED and why == library.VIR_DOMAIN_PAUSED_IOERROR:
        full = library.VIR_DOMAIN_DISK_ERROR_NO_SPACE in domain.diskErrors().values()
        return "full" if full else "paused"
    if number in {library.VIR_DOMAIN_PAUSED, library.VIR_DOMAIN_PMSUSPENDED}:
        return "paused"
    if number == library.VIR_DOMAIN_CRASHED:
        return "crashed"
    return "saved" if domain.hasManagedSaveImage() else "off"


def size(domain: libvirt.virDomain) -> tuple[int, int]:
    """Virtual CPUs and MiB of memory in use; 0 if it does not run."""
    if not domain.isActive():
        return 0, 0
    _, memory_kib, _, vcpus, _ = domain.info()
    return int(vcpus), int(memory_kib) // 1024


def start(domain: libvirt.virDomain) -> State:
    """Start or resume it, from saved memory if there is any; returns its previous state."""
    before = state(domain)
    if before in {"paused", "full"}:
        domain.resume()
    elif before != "running":
        if before == "crashed":
            domain.destroy()
        domain.create()
    return before


def save(domain: libvirt.virDomain) -> bool:
    """Save its memory to disk and stop it; False if it was not running."""
    if state(domain) != "running":
        return False
    domain.managedSave()
    return True


def remove(domain: libvirt.virDomain) -> None:
    """Stop it and undefine it, with saved memory, snapshots and firmware variables."""
    library = connection.load()
    flags = (
        library.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | library.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | library.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | library.VIR_DOMAIN_UNDEFINE_NVRAM
    )
    for act in (domain.destroy, lambda: domain.undefineFlags(flags)):
        with connection.ignore("VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
            act()


def screenshot(domain: libvirt.virDomain) -> bytes:
    """Its screen as PNG."""
    picture = bytearray()

    def take(_stream: object, data: bytes, into: bytearray) -> int:
        into += data
        return len(data)

    with connection.streamed(domain.connect()) as stream:
        domain.screenshot(stream, 0)
        stream.recvAll(take, picture)
    return to_png(bytes(picture))


def discard_volume(domain: libvirt.virDomain, pool: libvirt.virStoragePool, name: str) -> None:
    """Eject a volume from all drives, locked or not, and delete it. Repeatable.

    Raises libvirtError if libvirt refuses.
    """
    library = connection.load()
    flags = library.VIR_DOMAIN_AFFECT_CONFIG
    if domain.isActive():
        flags |= library.VIR_DOMAIN_AFFECT_LIVE | library.VIR_DOMAIN_DEVICE_MODIFY_FORCE
    for target in drives_with(domain.XMLDesc(), f"/{name}"):
        domain.updateDeviceFlags(documents.empty_drive(target), flags)
    storage.refresh(pool)
    storage.remove(pool, name)


def drives_with(document: str, ending: str) -> tuple[str, ...]:
    """The CD drives with a file whose path ends with ``ending``. Pure."""
    drives: list[str] = []
    for disk in ET.fromstring(document).iterfind("devices/disk[@device='cdrom']"):  # noqa: S314  libvirt's own
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None and source.get("file", "").endswith(ending):
            drives.append(target.get("dev", ""))
    return tuple(drives)


_PNG = b"\x89PNG\r\n\x1a\n"
_PPM = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s", re.ASCII)


def to_png(picture: bytes) -> bytes:
    """Convert QEMU's screenshot, a PNG or a binary 8-bit PPM (P6), to PNG. Pure.

    Raises ValueError if it is neither.
    """
    if picture.startswith(_PNG):
        return picture
    head = _PPM.match(picture)
    if head is None:
        raise ValueError(f"unknown picture format: it begins with {picture[:12]!r}")
    width, height = int(head[1]), int(head[2])
    row = width * 3
    pixels = picture[head.end() : head.end() + row * height]
    if len(pixels) < row * height:
        raise ValueError(f"it ends after {len(pixels)} bytes of {width}x{height} pixels")
    lines = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    header = struct.pack("!2I5B", width, height, 8, 2, 0, 0, 0)
    return _PNG + b"".join(
        _png_chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    )


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    """PNG (Third Edition), 5.3: length, kind, data, CRC of kind and data."""
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))


_LEAVE = b"\x1d"
"""Ctrl-], as in virsh and telnet."""
_CHUNK = 4096
_CHUNKS_AT_ONCE = 16
_EVERY_SECONDS = 0.02
"""Poll interval for output: libvirt's stream has no descriptor to wait on."""


def join_console(domain: libvirt.virDomain) -> int:
    """Copy both ways until Ctrl-], end of input, or the machine stops. Always returns 0.

    Raises UsageError if standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            f"connecting to the console of '{domain.name()}'",
            "standard input is not a terminal",
            "'--log' prints the console's output",
        )
    library = connection.load()
    stream = domain.connect().newStream(library.VIR_STREAM_NONBLOCK)
    domain.openConsole(None, stream, library.VIR_DOMAIN_CONSOLE_FORCE)
    say("the serial console; Ctrl-] leaves it")
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        _copy(stream)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        with suppress(library.libvirtError):  # the machine has closed it
            stream.abort()
    return 0


def _copy(stream: libvirt.virStream, keyboard: int = 0, screen: int = 1) -> None:
    waiting = b""
    while _show(stream, screen):
        if select.select([keyboard], [], [], _EVERY_SECONDS)[0]:
            typed = os.read(keyboard, _CHUNK)
            if not typed or _LEAVE in typed:
                return
            waiting += typed
        if waiting:
            waiting = waiting[max(0, stream.send(waiting)) :]  # negative: it would block


def _show(stream: libvirt.virStream, screen: int) -> bool:
    """Print pending output; False at the stream's end.

    Limited per call, so that heavy output does not block the keyboard.
    """
    for _ in range(_CHUNKS_AT_ONCE):
        data = stream.recv(_CHUNK)
        if data == -2:  # noqa: PLR2004  libvirt's "nothing yet"
            return True
        if not data:
            return False
        os.write(screen, data)
    return True


_ENDS = (
    ("the kernel panicked", r"Kernel panic"),
    ("systemd stopped in emergency mode", r"emergency mode|Emergency Shell"),
    ("the initial RAM disk found no root file system", r"\(initramfs\)|Gave up waiting for root"),
    ("the firmware found nothing to boot", r"No bootable device"),
)
"""After one of these the boot does not continue."""
_PHASES = (
    *_ENDS,
    ("it has booted, so SSH or its network fails", r"login: ?$|Multi-User System"),
    ("cloud-init was running", r"cloud-init\["),
    ("systemd was starting services", r"systemd\[1\]|Reached target|Starting .*\.\.\."),
    ("the initial RAM disk was running", r"Begin: |initramfs|Run /init|^hybridlab: "),
    ("the kernel was booting", r"Linux version|\[ +\d+\.\d+\]"),
    ("the boot loader was running", r"GRUB|Booting "),
    ("the firmware was running", r"SeaBIOS|BdsDxe|UEFI|iPXE"),
)
_BEGINNINGS = ("Linux version", "hybridlab: handing over")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]")


def boot_phase(text: str) -> str:
    """How far a guest with this console output has booted. Pure."""
    text_of_boot = _last_boot(clean_console(text))
    for words, pattern in _PHASES:
        if re.search(pattern, text_of_boot, re.MULTILINE):
            return words
    return "its console is empty" if not text_of_boot.strip() else "its phase is unknown"


def has_given_up(text: str) -> bool:
    """True if a guest with this console output has stopped for good. Pure."""
    text_of_boot = _last_boot(clean_console(text))
    return any(re.search(pattern, text_of_boot, re.MULTILINE) for _, pattern in _ENDS)


def _last_boot(console: str) -> str:
    """The output since the last kernel started, or since our images' first own message."""
    return console[max(0, *(console.rfind(sign) for sign in _BEGINNINGS)) :]


def console_tail(text: str, lines: int = 12) -> str:
    """The last lines, without escape sequences, indented for a message. Pure."""
    last = [line for line in clean_console(text).splitlines() if line.strip()][-lines:]
    return "".join(f"\n    | {line[:160]}" for line in last)


def clean_console(text: str) -> str:
    """The text without escape sequences and control characters. Pure."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
