"""An installation of Windows, followed from outside to its end.

The guest writes its phases on its first serial port where it can, one line each, ended by CR LF::

    hybridlab: phase specialize|first-logon|sysprep|ready
    hybridlab: step <name>                a step begins
    hybridlab: failed <name>: <message>   a step has failed; nothing follows
    hybridlab: key ssh-ed25519 AAAA...    the guest's SSH host key
    hybridlab: certificate <64 hex>       SHA-256 of the guest's WinRM certificate (DER)

``key`` and ``certificate`` come before ``phase ready``, which comes when both ports are open.
Where no script of the lab runs in it yet (firmware, Windows PE, which has no serial port, Setup
that partitions and copies, Windows between two of its own starts) growth of the disk and reboots
show the phase. Phases go forwards
only; one that was too quick to be seen is passed over.
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
from lab.imaging.windows.machine import Building

if TYPE_CHECKING:
    from lab.imaging.recipe import WindowsPhase


PREFIX = "hybridlab: "
Word = Literal["phase", "step", "failed", "key", "certificate"]
_LINE = re.compile(
    re.escape(PREFIX) + r"(?P<word>phase|step|failed|key|certificate) (?P<rest>\S.*?)\s*$"
)


@dataclass(frozen=True, slots=True)
class ConsoleMessage:
    """A line of the console that is for the lab."""

    word: Word
    rest: str


def parse_message(line: str) -> ConsoleMessage | None:
    """Parse a line of the console; None if it is not for the lab.

    The line may begin with what firmware or another program has left on it.
    """
    found = _LINE.search(line)
    if found is None:
        return None
    return ConsoleMessage(found["word"], found["rest"])  # type: ignore[arg-type]


Ending = Literal["", "failed", "down", "again", "loops"]
"""Why waiting is useless: a step failed, the machine shut down too early, Setup starts again and
again, or Windows specialises again and again."""
SILENT_RESTARTS = 2
"""How often the machine may restart before Windows says a word: after Setup's copy, and once more
where specialize has no serial port either. [I]"""
RESTART_SECONDS = 30.0
"""Resets closer together are one restart: SeaBIOS was seen to reset three times in two seconds."""
SPECIALIZE_LIMIT = 2
"""How often Windows may begin to specialise: once, and once more where it was reset then. [I]"""
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
"""Bytes that the disk takes when it is being partitioned; an empty qcow2 disk takes less than
1 MiB, as measured. [I]"""
COPY_BEGUN = 256 << 20
"""The same, when files are being laid down: more than empty file systems take. [I]"""
EMULATED = 10
"""How many times longer a phase may take where the processor is emulated: a guess, since no Windows
has been run so."""
KEPT = 16_384
"""Characters of the console that are kept for messages."""
_SAYS: Mapping[str, WindowsPhase] = {
    "specialize": "specialize",
    "first-logon": "first-logon",
    "ready": "ready",
    "sysprep": "sysprep",
}
"""What the guest itself says of its phase."""
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
        "driver (virtio-win)"
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
    """The machine as the host sees it at one moment."""

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
    """When its present phase began, on the clock of :class:`Observation`."""
    phase: WindowsPhase = "starting"
    step: str = ""
    """The step that the guest reported."""
    ending: Ending = ""
    failure: str = ""
    """``step: message``, where a step failed."""
    off: bool = False
    """It has shut itself down when it was to."""
    key: str = ""
    """Its SSH host key, ``ssh-ed25519 AAAA...``."""
    certificate: str = ""
    """SHA-256 of its WinRM certificate, in hex."""
    reboots: int = 0
    restarts: int = 0
    """Reboots that are one: firmware and boot loader reset the machine further times."""
    restarted: float = float("-inf")
    """When the last one was."""
    reboots_before: int = 0
    """When the present phase began."""
    disk_bytes: int = 0
    disk_before: int = 0
    """When the present phase began."""
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


def advance(before: Progress, seen: Observation) -> Progress:
    """The progress after one more observation."""
    now = replace(
        before,
        reboots=max(before.reboots, seen.reboots),
        disk_bytes=seen.disk_bytes,
        grown=seen.at if seen.disk_bytes > before.disk_bytes else before.grown,
        tail=(before.tail + seen.said)[-KEPT:],
    )
    if seen.reboots > before.reboots and seen.at - before.restarted > RESTART_SECONDS:
        now = replace(now, restarts=now.restarts + 1, restarted=seen.at)
    if seen.picture and seen.picture != before.picture:
        now = replace(now, picture=seen.picture, changed=seen.at)
    *lines, rest = (before.line + seen.said.replace("\r", "\n")).split("\n")
    now = replace(now, line=rest[-KEPT:])
    for line in lines:
        word = parse_message(line)
        if word is not None and not now.ending:
            now = _apply_message(now, word, seen.at)
    if not now.ending:
        now = _infer_phase(now, seen.at)
    if seen.runs or now.ending:
        return now
    return replace(now, off=True) if now.phase == "sysprep" else replace(now, ending="down")


def is_late(
    progress: Progress, minutes: Mapping[WindowsPhase, int], slowdown: int, at: float
) -> bool:
    """Whether the present phase has taken longer than it may.

    ``slowdown``: how many times as long as ``minutes`` says.
    """
    return at - progress.began > minutes[progress.phase] * 60.0 * slowdown


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
    words.append(f"{progress.reboots} reboots, {progress.reboots - progress.reboots_before} in it")
    if progress.picture:
        words.append(f"the screen changed {_span(at - progress.changed)} ago")
    return "; ".join(words)


def _apply_message(now: Progress, word: ConsoleMessage, at: float) -> Progress:
    match word.word:
        case "phase":
            return _enter_phase(now, word.rest, at)
        case "step":
            return replace(now, step=word.rest)
        case "failed":
            return replace(now, ending="failed", failure=word.rest)
        case "key":
            return replace(now, key=word.rest)
        case "certificate":
            return replace(now, certificate=word.rest.lower())


def _enter_phase(now: Progress, said: str, at: float) -> Progress:
    """A phase as the guest says it."""
    phase = _SAYS.get(said)
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
"""How often console, disk and state are looked at."""
_PICTURE_SECONDS = 15.0
"""How often the screen is."""
_LINES = 8
"""Last lines of the console in a message."""
_MARGIN_SECONDS = 60.0
"""On top of what the phases may take all together."""


@dataclass
class InstallMonitor:
    """Follows the installation in one machine.

    ``image``: its name, for messages. ``machine``: the machine. ``minutes``: that each phase may
    take. ``logs``: directory for the console, and for pictures. ``tell``: called with every phase
    as it is entered. ``resets_before``: how often it had been reset before this command looked at
    it. ``collect_logs``: called when the machine is given up, with a way into it if there was one;
    what it says goes into the message. ``reset``: called with the total number of resets, after
    each.
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
        """Begin to look now."""
        self.progress = begin(time.monotonic())
        self._slowdown = 1 if self.machine.accelerated else EMULATED
        self.logs.mkdir(parents=True, exist_ok=True)
        self.console.write_bytes(b"")

    @property
    def console(self) -> Path:
        """The file that has all that the machine has said."""
        return self.logs / f"{self.image}.log"

    def seconds(self, phase: WindowsPhase) -> float:
        """Seconds that a phase may take on this machine."""
        return self.minutes[phase] * 60.0 * self._slowdown

    def until(self, reached: Callable[[Progress], bool]) -> None:
        """Follow it until then.

        Raises DeadlineError when a phase takes too long: which, and all that was seen of it. Raises
        BrokenError when it has come to an end from which it does not go on; the same.
        """
        longest = sum(self.minutes.values()) * 60.0 * self._slowdown + _MARGIN_SECONDS
        doing = f"installing image '{self.image}'"
        Deadline(longest).wait(doing, lambda: self._step(reached), every=LOOK_SECONDS)

    def _step(self, reached: Callable[[Progress], bool]) -> bool:
        self.look()
        if reached(self.progress):
            return True
        if self.progress.ending:
            raise BrokenError(*self._error_parts(_describe_ending(self.progress)))
        at = time.monotonic()
        if is_late(self.progress, self.minutes, self._slowdown, at):
            span = f"{self.seconds(self.progress.phase) / 60:.0f} min"
            raise DeadlineError(
                *self._error_parts(f"phase '{self.progress.phase}' has not ended within {span}")
            )
        return False

    def look(self) -> None:
        """Look once; report and keep what is new."""
        state = self.machine.look(self._heard)
        at = time.monotonic()
        seen = Observation(
            at=at,
            disk_bytes=state.disk_bytes,
            reboots=self.resets_before + state.resets,
            picture=self._screen(at) if state.runs else "",
        )
        self._heard += len(state.said)
        with self.console.open("ab") as log:
            log.write(state.said)
        resets = self.progress.reboots
        for line in state.said.decode("ascii", errors="replace").splitlines(keepends=True):
            self._take(replace(seen, said=line))
        self._take(replace(seen, runs=state.runs))
        if self.progress.reboots != resets:
            self.reset(self.progress.reboots)

    def _take(self, seen: Observation) -> None:
        """Add an observation, and report what is new in it."""
        before, self.progress = self.progress, advance(self.progress, seen)
        self._tell(before)

    def _tell(self, before: Progress) -> None:
        now = self.progress
        if now.phase != before.phase:
            self.tell(f"{now.phase}: {PHASE_TITLES[now.phase]}")
        if now.step and now.step != before.step:
            self.tell(f"{now.phase}: step '{now.step}'")

    def _screen(self, at: float) -> str:
        """Digest of what the screen shows, if it is time to look; a machine may show none."""
        if at - self._pictured < _PICTURE_SECONDS:
            return ""
        self._pictured = at
        with suppress(LabError):
            return hashlib.sha256(self.machine.picture()).hexdigest()
        return ""

    def evidence(self) -> str:
        """All that was seen of the present phase, and where pictures and logs are kept."""
        now, at = self.progress, time.monotonic()
        seen = [describe(now, at)]
        with suppress(LabError, OSError):
            path = self.logs / f"{self.image}-{now.phase}.png"
            path.write_bytes(self.machine.picture())
            seen.append(f"its screen is in '{path}'")
        with suppress(LabError):
            said = self.collect_logs(now)
            seen += [said] if said else []
        seen.append(f"all of its console is in '{self.console}', which ends:{_tail(now)}")
        return "; ".join(seen)

    def _error_parts(self, what: str) -> tuple[str, str, str]:
        """Doing, happened and hint of an error that ends the installation."""
        look = f"look at {LOOK_AT[self.progress.phase]}; then build it again"
        return f"installing image '{self.image}'", f"{what}; {self.evidence()}", look


def _describe_ending(progress: Progress) -> str:
    """Why nothing is to be waited for any more."""
    if progress.ending == "failed":
        return f"step {progress.failure}"
    if progress.ending == "again":
        return (
            f"the machine has restarted {progress.restarts} times, and Windows has said nothing: "
            "it starts the medium again instead of the disk, or Setup fails and restarts"
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
