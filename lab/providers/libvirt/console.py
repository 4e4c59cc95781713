"""What a guest's serial console says, read for people. Pure."""

from __future__ import annotations

import re

_ENDS = (
    ("the kernel panicked", r"Kernel panic"),
    ("systemd gave up and asks for maintenance", r"emergency mode|Emergency Shell"),
    ("the initial RAM disk found no root file system", r"\(initramfs\)|Gave up waiting for root"),
    ("the firmware found nothing to boot", r"No bootable device"),
)
"""After these nothing goes on by itself."""
_PHASES = (
    *_ENDS,
    ("it has booted, so SSH or its network is what fails", r"login: ?$|Multi-User System"),
    ("cloud-init was at work", r"cloud-init\["),
    ("systemd was starting services", r"systemd\[1\]|Reached target|Starting .*\.\.\."),
    ("the initial RAM disk was at work", r"Begin: |initramfs|Run /init|^hybridlab: "),
    ("the kernel was booting", r"Linux version|\[ +\d+\.\d+\]"),
    ("the boot loader was at work", r"GRUB|Booting "),
    ("the firmware was at work", r"SeaBIOS|BdsDxe|UEFI|iPXE"),
)
_BEGINNINGS = ("Linux version", "hybridlab: handing over")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|[\x00-\x08\x0b-\x1f]")


def phase(text: str) -> str:
    """How far a guest has come that says this on its console."""
    said = _last_boot(clean(text))
    for words, pattern in _PHASES:
        if re.search(pattern, said, re.MULTILINE):
            return words
    return "it has said nothing on its console" if not said.strip() else "its phase is not known"


def has_given_up(text: str) -> bool:
    """Whether a guest that says this has come to an end from which it does not go on."""
    said = _last_boot(clean(text))
    return any(re.search(pattern, said, re.MULTILINE) for _, pattern in _ENDS)


def _last_boot(said: str) -> str:
    """From the last start of a kernel on, or of what our own images begin with."""
    return said[max(0, *(said.rfind(sign) for sign in _BEGINNINGS)) :]


def tail(text: str, lines: int = 12) -> str:
    """The last lines, without escape sequences, indented to stand in a message."""
    last = [line for line in clean(text).splitlines() if line.strip()][-lines:]
    return "".join(f"\n    | {line[:160]}" for line in last)


def clean(text: str) -> str:
    """Without escape sequences and control characters."""
    return _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
