"""An installation, followed from outside until it is where it is to be, or is given up in words."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.imaging.windows import phases
from lab.imaging.windows.machine import Building
from lab.imaging.windows.phases import EMULATED, Progress, Seen

if TYPE_CHECKING:
    from lab.imaging.recipe import WindowsPhase

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
    """What is known of one machine, and how it is got to know.

    Parameters
    ----------
    image
        Its name, for messages.
    machine
        The machine.
    minutes
        That each phase may take.
    logs
        Directory for the console, and for pictures.
    tell
        Is told every phase as it is entered.
    resets_before
        How often it had been reset before this command looked at it.
    witness
        Called when the machine is given up, with a way into it if there was one; what it says
        goes into the message.
    reset
        Is told how often it was reset, all in all, whenever it was again.

    """

    image: str
    machine: Building
    minutes: Mapping[WindowsPhase, int]
    logs: Path
    tell: Callable[[str], None]
    resets_before: int = 0
    witness: Callable[[Progress], str] = lambda _: ""
    reset: Callable[[int], None] = lambda _: None
    progress: Progress = field(init=False)
    _heard: int = 0
    _pictured: float = -_PICTURE_SECONDS

    def __post_init__(self) -> None:
        """Begin to look now."""
        self.progress = phases.begin(time.monotonic())
        self._patience = 1 if self.machine.accelerated else EMULATED
        self.logs.mkdir(parents=True, exist_ok=True)
        self.console.write_bytes(b"")

    @property
    def console(self) -> Path:
        """The file that has all that the machine has said."""
        return self.logs / f"{self.image}.log"

    def seconds(self, phase: WindowsPhase) -> float:
        """What a phase may take on this machine."""
        return self.minutes[phase] * 60.0 * self._patience

    def until(self, reached: Callable[[Progress], bool]) -> None:
        """Follow it until then.

        Raises
        ------
        DeadlineError
            When a phase takes too long: which, and all that was seen of it.
        BrokenError
            When it has come to an end from which it does not go on; the same.

        """
        longest = sum(self.minutes.values()) * 60.0 * self._patience + _MARGIN_SECONDS
        doing = f"installing image '{self.image}'"
        Deadline(longest).wait(doing, lambda: self._step(reached), every=LOOK_SECONDS)

    def _step(self, reached: Callable[[Progress], bool]) -> bool:
        self.look()
        if reached(self.progress):
            return True
        if self.progress.ending:
            raise BrokenError(*self._story(_ended(self.progress)))
        at = time.monotonic()
        if phases.late(self.progress, self.minutes, self._patience, at):
            span = f"{self.seconds(self.progress.phase) / 60:.0f} min"
            raise DeadlineError(
                *self._story(f"phase '{self.progress.phase}' has not ended within {span}")
            )
        return False

    def look(self) -> None:
        """Look once; what is new is told, and kept."""
        glance = self.machine.look(self._heard)
        at = time.monotonic()
        seen = Seen(
            at=at,
            disk_bytes=glance.disk_bytes,
            reboots=self.resets_before + glance.resets,
            picture=self._screen(at) if glance.runs else "",
        )
        self._heard += len(glance.said)
        with self.console.open("ab") as log:
            log.write(glance.said)
        resets = self.progress.reboots
        for line in glance.said.decode("ascii", errors="replace").splitlines(keepends=True):
            self._take(replace(seen, said=line))
        self._take(replace(seen, runs=glance.runs))
        if self.progress.reboots != resets:
            self.reset(self.progress.reboots)

    def _take(self, seen: Seen) -> None:
        """Add what was seen, and tell what is new in it."""
        before, self.progress = self.progress, phases.advance(self.progress, seen)
        self._tell(before)

    def _tell(self, before: Progress) -> None:
        now = self.progress
        if now.phase != before.phase:
            self.tell(f"{now.phase}: {phases.WORDS[now.phase]}")
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
        seen = [phases.account(now, at)]
        with suppress(LabError, OSError):
            path = self.logs / f"{self.image}-{now.phase}.png"
            path.write_bytes(self.machine.picture())
            seen.append(f"its screen is in '{path}'")
        with suppress(LabError):
            said = self.witness(now)
            seen += [said] if said else []
        seen.append(f"all of its console is in '{self.console}', which ends:{_tail(now)}")
        return "; ".join(seen)

    def _story(self, what: str) -> tuple[str, str, str]:
        """Doing, happened and hint of an error that ends the installation."""
        look = f"look at {phases.LOOK_AT[self.progress.phase]}; then build it again"
        return f"installing image '{self.image}'", f"{what}; {self.evidence()}", look


def _ended(progress: Progress) -> str:
    """Why nothing is to be waited for any more."""
    if progress.ending == "failed":
        return f"step {progress.failure}"
    if progress.ending == "again":
        return (
            "Setup has begun a second time: the machine was reset before Windows was on the disk, "
            "or it starts the medium again instead of the disk"
        )
    if progress.ending == "loops":
        return (
            f"Windows has begun phase 'specialize' {progress.specializes} times: each time the "
            "machine was reset in the middle of it"
        )
    return f"the machine went down at '{progress.phase}', before it was to"


def _tail(progress: Progress) -> str:
    lines = [line for line in progress.tail.replace("\r", "\n").split("\n") if line.strip()]
    return "".join(f"\n    | {line[:160]}" for line in lines[-_LINES:]) or " it has said nothing"
