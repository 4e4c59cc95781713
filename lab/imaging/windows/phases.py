"""How far an installation has come: told from outside, from what the host sees of it. Pure.

The guest says its phases on its first serial port where it can: a line each, ended by CR LF::

    hybridlab: phase winpe|specialize|first-logon|sysprep|ready
    hybridlab: step <name>                a step of ours begins
    hybridlab: failed <name>: <message>   a step of ours has failed; nothing follows
    hybridlab: key ssh-ed25519 AAAA...    the guest's SSH host key
    hybridlab: certificate <64 hex>       SHA-256 of the guest's WinRM certificate (DER)

``key`` and ``certificate`` come before ``phase ready``, which comes when both ports are open.
Where nothing of ours runs in it yet (firmware, Setup that partitions and copies, Windows between
two of its own starts) growth of the disk and reboots tell. Phases go forwards only; one that was
too quick to be seen is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from lab.imaging.recipe import WindowsPhase

PREFIX = "hybridlab: "
Word = Literal["phase", "step", "failed", "key", "certificate"]
_LINE = re.compile(
    re.escape(PREFIX) + r"(?P<word>phase|step|failed|key|certificate) (?P<rest>\S.*?)\s*$"
)


@dataclass(frozen=True, slots=True)
class Heard:
    """One line that was meant for us."""

    word: Word
    rest: str


def heard(line: str) -> Heard | None:
    """What a line of the console says to us; None for all others.

    The line may begin with what firmware or another program has left on it.
    """
    found = _LINE.search(line)
    if found is None:
        return None
    return Heard(found["word"], found["rest"])  # type: ignore[arg-type]


Ending = Literal["", "failed", "down", "again", "loops"]
"""Why nothing is to be waited for any more: a step of ours failed, the machine went down before
its time, Setup has begun anew, or Windows specialises again and again."""
MOST_SPECIALIZE = 2
"""How often Windows may begin to specialise: once, and once more where it was reset then. [I]"""
ORDER: tuple[WindowsPhase, ...] = (
    "starting",
    "winpe",
    "disk",
    "copy",
    "specialize",
    "oobe",
    "first-logon",
    "ready",
    "sysprep",
)
DISK_BEGUN = 1 << 20
"""Bytes that the disk has grown by since Setup began, when it is being partitioned. [I]"""
COPY_BEGUN = 256 << 20
"""The same, when files are being laid down: more than empty file systems take. [I]"""
EMULATED = 10
"""How many times longer a phase may take where the processor is emulated: a guess, since no Windows
has been run so."""
KEPT = 16_384
"""Characters of the console that are kept for messages."""
_SAYS: Mapping[str, WindowsPhase] = {
    "winpe": "winpe",
    "specialize": "specialize",
    "first-logon": "first-logon",
    "ready": "ready",
    "sysprep": "sysprep",
}
"""What the guest itself says of its phase."""
WORDS: Mapping[WindowsPhase, str] = {
    "starting": "the firmware starts the medium",
    "winpe": "Setup's own system (WinPE) is running",
    "disk": "Setup partitions the disk",
    "copy": "Setup lays down Windows",
    "specialize": "Windows starts from the disk for the first time (specialize)",
    "oobe": "Windows starts once more (OOBE)",
    "first-logon": "the first logon runs the lab's script",
    "ready": "steps are run over WinRM and SSH",
    "sysprep": "sysprep generalises it and shuts it down",
}
LOOK_AT: Mapping[WindowsPhase, str] = {
    "starting": (
        "the picture: a firmware menu or 'Press any key' means that it found no medium to boot; "
        "see that the ISO is Microsoft's and whole ('lab image inspect')"
    ),
    "winpe": (
        "the picture: Setup shows a dialog where the answer file does not fit; 'No images are "
        "available' is a wrong image name or key, no disk in the list a missing storage driver "
        "(virtio-win)"
    ),
    "disk": "the picture: Setup tells what it dislikes of the disk; 60 GiB are enough for all",
    "copy": "the picture, and whether the disk still grows; the ISO may be damaged: compare its "
    "SHA-256 with Microsoft's",
    "specialize": (
        "the picture: 'Windows could not parse or process the unattend answer file for pass "
        "[specialize]' names the component; a blue screen is a missing driver for the disk"
    ),
    "oobe": (
        "the picture: 'The computer restarted unexpectedly' means that it was reset while it "
        "specialised; a question means that the answer file leaves it open"
    ),
    "first-logon": "the last step on its console: that command of bootstrap.ps1 has not ended",
    "ready": "whether WinRM (5986) and SSH (22) let this machine in; the logs beside the picture",
    "sysprep": "Sysprep's own log, Panther\\setupact.log beside the picture, names the package",
}
"""What to look at when the phase takes too long."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the host sees of the machine at one moment."""

    at: float
    """Seconds, on any clock that does not go back."""
    said: str = ""
    """What has come on COM1 since the last look."""
    disk_bytes: int = 0
    """That the disk takes on the hypervisor."""
    reboots: int = 0
    """How often it was reset since it was first started."""
    runs: bool = True
    picture: str = ""
    """Digest of what the screen shows; empty where nobody has looked."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All that is known of an installation."""

    began: float
    """When its present phase began, on the clock of :class:`Seen`."""
    phase: WindowsPhase = "starting"
    step: str = ""
    """Step of ours that the guest said it is at."""
    ending: Ending = ""
    failure: str = ""
    """``step: message``, where a step of ours has failed."""
    off: bool = False
    """It has shut itself down when it was to."""
    key: str = ""
    """Its SSH host key, ``ssh-ed25519 AAAA...``."""
    certificate: str = ""
    """SHA-256 of its WinRM certificate, in hex."""
    reboots: int = 0
    reboots_before: int = 0
    """When the present phase began."""
    disk_bytes: int = 0
    disk_before: int = 0
    """When the present phase began."""
    disk_empty: int = -1
    """When Setup began; -1 before that."""
    setups: int = 0
    """How often Setup has begun."""
    specializes: int = 0
    """How often Windows has begun to specialise."""
    grown: float = 0.0
    """When the disk last grew."""
    picture: str = ""
    changed: float = 0.0
    """When the screen last changed."""
    tail: str = ""
    """The end of all that it has said."""
    line: str = ""
    """What it has said since the last end of a line."""


def begin(at: float) -> Progress:
    """Of a machine that is just being started, or of which nothing is known yet."""
    return Progress(began=at, grown=at, changed=at)


def advance(before: Progress, seen: Seen) -> Progress:
    """What is known after one more look."""
    now = replace(
        before,
        reboots=max(before.reboots, seen.reboots),
        disk_bytes=seen.disk_bytes,
        grown=seen.at if seen.disk_bytes > before.disk_bytes else before.grown,
        tail=(before.tail + seen.said)[-KEPT:],
    )
    if seen.picture and seen.picture != before.picture:
        now = replace(now, picture=seen.picture, changed=seen.at)
    *lines, rest = (before.line + seen.said.replace("\r", "\n")).split("\n")
    now = replace(now, line=rest[-KEPT:])
    for line in lines:
        word = heard(line)
        if word is not None and not now.ending:
            now = _told(now, word, seen.at)
    if not now.ending:
        now = _guessed(now, seen.at)
    if seen.runs or now.ending:
        return now
    return replace(now, off=True) if now.phase == "sysprep" else replace(now, ending="down")


def late(progress: Progress, minutes: Mapping[WindowsPhase, int], patience: int, at: float) -> bool:
    """Whether the present phase has taken longer than it may.

    ``patience``: how many times as long as ``minutes`` says.
    """
    return at - progress.began > minutes[progress.phase] * 60.0 * patience


def account(progress: Progress, at: float) -> str:
    """What has been seen in the present phase, for a person: one clause after the other."""
    words = [f"at '{progress.phase}' ({WORDS[progress.phase]}) for {_span(at - progress.began)}"]
    if progress.step:
        words.append(f"its last step is '{progress.step}'")
    grown = progress.disk_bytes - progress.disk_before
    words.append(
        f"the disk has {_size(progress.disk_bytes)}, {_size(grown)} more since the phase began"
        + (f", the last {_span(at - progress.grown)} ago" if grown else "")
    )
    words.append(f"{progress.reboots} reboots, {progress.reboots - progress.reboots_before} in it")
    if progress.picture:
        words.append(f"the screen changed {_span(at - progress.changed)} ago")
    return "; ".join(words)


def _told(now: Progress, word: Heard, at: float) -> Progress:
    match word.word:
        case "phase":
            return _entered(now, word.rest, at)
        case "step":
            return replace(now, step=word.rest)
        case "failed":
            return replace(now, ending="failed", failure=word.rest)
        case "key":
            return replace(now, key=word.rest)
        case "certificate":
            return replace(now, certificate=word.rest.lower())


def _entered(now: Progress, said: str, at: float) -> Progress:
    """A phase as the guest says it."""
    phase = _SAYS.get(said)
    if phase is None:
        return now
    if phase == "winpe":
        now = replace(now, setups=now.setups + 1)
        if now.setups > 1:
            return replace(now, ending="again")
        now = replace(now, disk_empty=now.disk_bytes)
    if phase == "specialize":
        now = replace(now, specializes=now.specializes + 1)
        if now.specializes > MOST_SPECIALIZE:
            return replace(now, phase=phase, ending="loops")
    return _forward(now, phase, at)


def _guessed(now: Progress, at: float) -> Progress:
    """A phase that nobody says: by the disk's growth, and by a reboot."""
    grown = now.disk_bytes - now.disk_empty
    if now.phase in {"winpe", "disk"} and grown >= COPY_BEGUN:
        return _forward(now, "copy", at)
    if now.phase == "winpe" and grown >= DISK_BEGUN:
        return _forward(now, "disk", at)
    if now.phase == "specialize" and now.reboots > now.reboots_before:
        return _forward(now, "oobe", at)
    return now


def _forward(now: Progress, phase: WindowsPhase, at: float) -> Progress:
    if ORDER.index(phase) <= ORDER.index(now.phase):
        return now
    return replace(
        now,
        phase=phase,
        began=at,
        step="",
        reboots_before=now.reboots,
        disk_before=now.disk_bytes,
    )


def _span(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min"  # noqa: PLR2004  two minutes


def _size(size: int) -> str:
    mib = size / (1 << 20)
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"  # noqa: PLR2004  a GiB
