"""Follows an installation of Windows from outside to its end.

The guest reports its phases on its first serial port when it can, one line each, ended by CR LF::

    hybridlab: phase specialize|first-logon|sysprep|ready
    hybridlab: step <name>                a step begins
    hybridlab: failed <name>: <message>   a step has failed; nothing follows
    hybridlab: key ssh-ed25519 AAAA...    the guest's SSH host key
    hybridlab: certificate <64 hex>       SHA-256 of the guest's WinRM certificate (DER)

``key`` and ``certificate`` come before ``phase ready``, which comes when both ports are open. While
no script of the lab runs in the guest (firmware, Windows PE, which has no serial port, Setup
partitioning and copying, Windows between two of its own starts), growth of the disk and reboots
show the phase. Phases only advance; one too short to be observed is skipped.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.machines.images.installation import Building

if TYPE_CHECKING:
    from lab.machines.images.recipe import WindowsPhase


PREFIX = "hybridlab: "
_LINE = re.compile(
    re.escape(PREFIX) + r"(?P<word>phase|step|failed|key|certificate) (?P<rest>\S.*?)\s*$"
)


def parse_message(line: str) -> tuple[str, str] | None:
    """First word and rest of a console line that is addressed to the lab; None for others.

    Output of firmware or another program may precede the message on the line.
    """
    match = _LINE.search(line)
    return None if match is None else (match["word"], match["rest"])


Ending = Literal["", "failed", "down", "again", "loops"]
"""Why waiting is pointless: a step failed, the machine shut down too early, Setup starts over and
over, or Windows specialises over and over.
"""
SILENT_RESTARTS = 2
"""Restarts allowed before Windows reports anything: after Setup's copy, and one more if specialize
has no serial port either. [I]
"""
RESTART_SECONDS = 30.0
"""Resets closer together are one restart: SeaBIOS was seen to reset three times in two seconds."""
SPECIALIZE_LIMIT = 2
"""Starts of specialize allowed: one, and one more after a reset during it. [I]"""
ORDER: tuple[WindowsPhase, ...] = (
    "starting",
    "disk",
    "copy",
    "specialize",
    "oobe",
    "first-logon",
    "ready",
    "sysprep",
)
DISK_BEGUN = 4 << 20
"""Bytes that the disk has once it is being partitioned; an empty qcow2 disk takes less than 1 MiB,
as measured. [I]
"""
COPY_BEGUN = 256 << 20
"""Bytes that the disk has once files are being copied: more than empty file systems take. [I]"""
EMULATED = 10
"""Factor for a phase's limit on an emulated processor: a guess, since no Windows has been run on
one."""
KEPT = 16_384
"""Characters of the console that are kept for messages."""
_REPORTED: tuple[WindowsPhase, ...] = ("specialize", "first-logon", "ready", "sysprep")
"""Phases that the guest itself reports."""
PHASE_TITLES: Mapping[WindowsPhase, str] = {
    "starting": "the firmware starts the medium, and Setup's own system (Windows PE)",
    "disk": "Setup partitions the disk",
    "copy": "Setup copies Windows to the disk",
    "specialize": "Windows starts from the disk for the first time (specialize)",
    "oobe": "Windows starts once more (OOBE)",
    "first-logon": "the first logon runs the lab's script",
    "ready": "steps are run over WinRM and SSH",
    "sysprep": "sysprep generalises it and shuts it down",
}
LOOK_AT: Mapping[WindowsPhase, str] = {
    "starting": (
        "the picture: a firmware menu or 'Press any key' means that it found no medium to boot "
        "('lab image inspect'); a dialog of Setup means that the answer file does not fit; 'No "
        "images are available' is a wrong image name or key, no disk in the list a missing storage "
        "driver (virtio-win); a black picture and an idle disk: try the other firmware "
        "('--firmware bios' or 'uefi')"
    ),
    "disk": "the picture: Setup shows what is wrong with the disk; 60 GiB are enough",
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
class Observation:
    """The machine at one moment, as the host sees it."""

    at: float
    """Seconds of a monotonic clock."""
    output: str = ""
    """Output on COM1 since the last look."""
    disk_bytes: int = 0
    """Bytes that the disk takes on the hypervisor."""
    reboots: int = 0
    """Number of resets since the machine was first started."""
    runs: bool = True
    picture: str = ""
    """Digest of the screen; empty if it was not captured."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All that is known of an installation."""

    began: float
    """When the present phase began, on the clock of :class:`Observation`."""
    phase: WindowsPhase = "starting"
    step: str = ""
    """The step that the guest reported last."""
    ending: Ending = ""
    failure: str = ""
    """``step: message`` of a failed step."""
    off: bool = False
    """Whether it has shut down as expected."""
    key: str = ""
    """Its SSH host key, ``ssh-ed25519 AAAA...``."""
    certificate: str = ""
    """SHA-256 of its WinRM certificate, in hex."""
    reboots: int = 0
    restarts: int = 0
    """Reboots, counting resets in quick succession by firmware and boot loader as one."""
    restarted: float = float("-inf")
    """Time of the last one."""
    reboots_before: int = 0
    """Reboots when the present phase began."""
    disk_bytes: int = 0
    disk_before: int = 0
    """Size when the present phase began."""
    specializes: int = 0
    """How often Windows has started specialize."""
    grown: float = 0.0
    """When the disk last grew."""
    picture: str = ""
    changed: float = 0.0
    """When the screen last changed."""
    tail: str = ""
    """The end of its output."""
    line: str = ""
    """Its output since the last end of a line."""


def begin(at: float) -> Progress:
    """Progress of a machine that is being started, or of which nothing is known yet."""
    return Progress(began=at, grown=at, changed=at)


def advance(before: Progress, observation: Observation) -> Progress:
    """The progress after one more observation."""
    now = replace(
        before,
        reboots=max(before.reboots, observation.reboots),
        disk_bytes=observation.disk_bytes,
        grown=observation.at if observation.disk_bytes > before.disk_bytes else before.grown,
        tail=(before.tail + observation.output)[-KEPT:],
    )
    if observation.reboots > before.reboots and observation.at - before.restarted > RESTART_SECONDS:
        now = replace(now, restarts=now.restarts + 1, restarted=observation.at)
    if observation.picture and observation.picture != before.picture:
        now = replace(now, picture=observation.picture, changed=observation.at)
    *lines, rest = (before.line + observation.output.replace("\r", "\n")).split("\n")
    now = replace(now, line=rest[-KEPT:])
    for line in lines:
        message = parse_message(line)
        if message is not None and not now.ending:
            now = _apply_message(now, *message, observation.at)
    if not now.ending:
        now = _infer_phase(now, observation.at)
    if observation.runs or now.ending:
        return now
    return replace(now, off=True) if now.phase == "sysprep" else replace(now, ending="down")


def describe(progress: Progress, at: float) -> str:
    """Describe the present phase for messages."""
    words = [
        f"at '{progress.phase}' ({PHASE_TITLES[progress.phase]}) for {_span(at - progress.began)}"
    ]
    if progress.step:
        words.append(f"its last step is '{progress.step}'")
    grown = progress.disk_bytes - progress.disk_before
    words.append(
        f"the disk has {_size(progress.disk_bytes)}, {_size(grown)} more since the phase began"
        + (f", the last {_span(at - progress.grown)} ago" if grown else "")
    )
    words.append(
        f"{progress.reboots} reboots, {progress.reboots - progress.reboots_before} in this phase"
    )
    if progress.picture:
        words.append(f"the screen changed {_span(at - progress.changed)} ago")
    return "; ".join(words)


def _apply_message(now: Progress, word: str, rest: str, at: float) -> Progress:
    match word:
        case "phase":
            return _enter_phase(now, rest, at)
        case "failed":
            return replace(now, ending="failed", failure=rest)
        case "certificate":
            return replace(now, certificate=rest.lower())
        case "step":
            return replace(now, step=rest)
        case _:
            return replace(now, key=rest)


def _enter_phase(now: Progress, word: str, at: float) -> Progress:
    """Enter a phase that the guest reports."""
    phase = next((reported for reported in _REPORTED if reported == word), None)
    if phase is None:
        return now
    if phase == "specialize":
        now = replace(now, specializes=now.specializes + 1)
        if now.specializes > SPECIALIZE_LIMIT:
            return replace(now, phase=phase, ending="loops")
    return _advance_to(now, phase, at)


def _infer_phase(now: Progress, at: float) -> Progress:
    """Infer a phase that is not reported, from the disk's growth and reboots."""
    if now.phase in {"starting", "disk", "copy"} and now.restarts > SILENT_RESTARTS:
        return replace(now, ending="again")
    if now.phase in {"starting", "disk"} and now.disk_bytes >= COPY_BEGUN:
        return _advance_to(now, "copy", at)
    if now.phase == "starting" and now.disk_bytes >= DISK_BEGUN:
        return _advance_to(now, "disk", at)
    if now.phase == "specialize" and now.reboots > now.reboots_before:
        return _advance_to(now, "oobe", at)
    return now


def _advance_to(now: Progress, phase: WindowsPhase, at: float) -> Progress:
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


LOOK_SECONDS = 1.0
"""Seconds between two looks at console, disk and state."""
_PICTURE_SECONDS = 15.0
"""Seconds between two captures of the screen."""
_LINES = 8
"""Last lines of the console in a message."""
_MARGIN_SECONDS = 60.0
"""Seconds in addition to the sum of the phases' limits."""


@dataclass
class InstallMonitor:
    """Follows the installation in one machine.

    ``image``: its name, for messages. ``minutes``: limit of each phase. ``logs``: directory for the
    console and pictures. ``tell``: called with each phase when it begins. ``resets_before``: resets
    before this command began to look. ``collect_logs``: called when the machine is given up, while
    it may still be reachable; the returned text goes into the message. ``reset``: called after each
    reset with the total number.
    """

    image: str
    machine: Building
    minutes: Mapping[WindowsPhase, int]
    logs: Path
    tell: Callable[[str], None]
    resets_before: int = 0
    collect_logs: Callable[[Progress], str] = lambda _: ""
    reset: Callable[[int], None] = lambda _: None
    progress: Progress = field(init=False)
    _heard: int = 0
    _pictured: float = -_PICTURE_SECONDS

    def __post_init__(self) -> None:
        """Start the clock."""
        self.progress = begin(time.monotonic())
        self._slowdown = 1 if self.machine.accelerated else EMULATED
        self.logs.mkdir(parents=True, exist_ok=True)
        self.console.write_bytes(b"")

    @property
    def console(self) -> Path:
        """The file with the machine's whole output."""
        return self.logs / f"{self.image}.log"

    @property
    def _doing(self) -> str:
        return f"installing image '{self.image}'"

    def seconds(self, phase: WindowsPhase) -> float:
        """Limit of a phase on this machine, in seconds."""
        return self.minutes[phase] * 60.0 * self._slowdown

    def until(self, reached: Callable[[Progress], bool]) -> None:
        """Follow the installation until ``reached`` returns true.

        Raises DeadlineError when a phase takes too long, with the phase and all that was observed.
        Raises BrokenError with the same when the installation has ended early.
        """
        longest = sum(self.minutes.values()) * 60.0 * self._slowdown + _MARGIN_SECONDS
        Deadline(longest).wait(self._doing, lambda: self._step(reached), every=LOOK_SECONDS)

    def _step(self, reached: Callable[[Progress], bool]) -> bool:
        self.look()
        if reached(self.progress):
            return True
        if self.progress.ending:
            raise BrokenError(*self._error_parts(_describe_ending(self.progress)))
        phase = self.progress.phase
        limit = self.seconds(phase)
        if time.monotonic() - self.progress.began > limit:
            words = f"phase '{phase}' has not ended within {limit / 60:.0f} min"
            raise DeadlineError(*self._error_parts(words))
        return False

    def look(self) -> None:
        """Look once; report and keep what is new."""
        state = self.machine.look(self._heard)
        at = time.monotonic()
        observation = Observation(
            at=at,
            disk_bytes=state.disk_bytes,
            reboots=self.resets_before + state.resets,
            picture=self._screen(at) if state.runs else "",
        )
        self._heard += len(state.output)
        with self.console.open("ab") as log:
            log.write(state.output)
        resets = self.progress.reboots
        for line in state.output.decode("ascii", errors="replace").splitlines(keepends=True):
            self._take(replace(observation, output=line))
        self._take(replace(observation, runs=state.runs))
        if self.progress.reboots != resets:
            self.reset(self.progress.reboots)

    def _take(self, observation: Observation) -> None:
        """Add an observation, and report what is new."""
        before, now = self.progress, advance(self.progress, observation)
        self.progress = now
        if now.phase != before.phase:
            self.tell(f"{now.phase}: {PHASE_TITLES[now.phase]}")
        if now.step and now.step != before.step:
            self.tell(f"{now.phase}: step '{now.step}'")

    def _screen(self, at: float) -> str:
        """Digest of the screen, if it is time to capture it; a machine may have none."""
        if at - self._pictured < _PICTURE_SECONDS:
            return ""
        self._pictured = at
        with suppress(LabError):
            return hashlib.sha256(self.machine.picture()).hexdigest()
        return ""

    def evidence(self) -> str:
        """All that was observed of the present phase, and where pictures and logs are."""
        now, at = self.progress, time.monotonic()
        lines = [describe(now, at)]
        with suppress(LabError, OSError):
            path = self.logs / f"{self.image}-{now.phase}.png"
            path.write_bytes(self.machine.picture())
            lines.append(f"its screen is in '{path}'")
        with suppress(LabError):
            logs = self.collect_logs(now)
            lines += [logs] if logs else []
        lines.append(f"all of its console is in '{self.console}', which ends:{_tail(now)}")
        return "; ".join(lines)

    def _error_parts(self, happened: str) -> tuple[str, str, str]:
        """Doing, happened and hint of the error that ends the installation."""
        at = LOOK_AT[self.progress.phase]
        if self.progress.ending == "failed":
            at = "what the step says, and at 'Known traps' in docs/how-to/windows.md"
        return self._doing, f"{happened}; {self.evidence()}", f"look at {at}; then build it again"


def _describe_ending(progress: Progress) -> str:
    """Why waiting is pointless."""
    if progress.ending == "failed":
        return f"step {progress.failure}"
    if progress.ending == "again":
        return (
            f"the machine has restarted {progress.restarts} times, and Windows has reported "
            "nothing: it starts the medium again instead of the disk, or Setup fails and restarts"
        )
    if progress.ending == "loops":
        return (
            f"Windows started phase 'specialize' {progress.specializes} times: each time the "
            "machine was reset in the middle of it"
        )
    return f"the machine shut down at '{progress.phase}', too early"


def _tail(progress: Progress) -> str:
    lines = [line for line in progress.tail.replace("\r", "\n").split("\n") if line.strip()]
    return "".join(f"\n    | {line[:160]}" for line in lines[-_LINES:]) or " it printed nothing"
