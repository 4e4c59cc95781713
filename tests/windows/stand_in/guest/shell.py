r"""Commands that come over WinRM and SSH: recorded, compared, never run.

Steps (``-File C:\hybridlab\NAME.ps1 -Settings C:\hybridlab\NAME.json``) are answered without
claiming any effect. Only commands about this machine itself have one: start time, restart,
generalizing. All others are unknown, which the double answers with exit code 1.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from double.script import Answer, Asked
from stand_in.guest import disk, drives, habits
from stand_in.guest.record import Record
from stand_in.guest.screen import flush, power_off, restart, say
from stand_in.guest.state import CACHED, FOLDER, SECRET, State

HERE = Path("/c/hybridlab")
_SYSTEM = r"(?:C:\\Windows\\System32\\)?"
STEP = re.compile(
    rf"(?i){_SYSTEM}(?:WindowsPowerShell\\v1\.0\\)?powershell\.exe -NoProfile -NonInteractive "
    r"-ExecutionPolicy Bypass -File C:\\hybridlab\\(?P<name>[a-z0-9-]+)\.ps1 "
    r"-Settings C:\\hybridlab\\(?P<settings>[a-z0-9-]+)\.json"
)
NOTHING = re.compile(rf"(?i){_SYSTEM}cmd\.exe /d /c exit 0")
RESTART = re.compile(rf"(?i){_SYSTEM}shutdown\.exe /r /f /t 0")
BOOT = re.compile(r"(?s).*\$system\.LastBootUpTime\..*'\{0:o\} \{1:0\}' -f \$boot, \$up\n.*")
ATTACHED = re.compile(
    r"(?s).*\$start\.FileName = '(?P<program>[^'\n]+)'\n"
    r"\$start\.Arguments = '(?P<arguments>[^'\n]*)'\n.*\$process\.WaitForExit\(\)\n.*"
)
"""A program on the user's terminal, of ``lab exec``."""
REBOOT_NEEDED = 3010
REBOOTS = ("features", "settings")
"""Steps that ask for a restart at their first run."""


class Shell:
    """The responder for :mod:`double`."""

    def __init__(self, state: State, record: Record, here: Path = HERE) -> None:
        self._state = state
        self._record = record
        self._here = here
        self._lock = threading.Lock()
        self._booted = time.time() - uptime()
        self.closing: Callable[[], object] = lambda: None
        """Stops the services."""
        self.later: Callable[[Callable[[], object]], object] = _later
        """Schedules a function for after the answer to this command."""

    def __call__(self, asked: Asked) -> Answer | None:
        with self._lock:
            told = {"script": asked.script} if asked.script else {"line": asked.line}
            self._record.add("asked", via=asked.via, **told)
            step = STEP.fullmatch(asked.line.strip())
            if step is not None:
                return self._step(step["name"], step["settings"])
            return self._plain(asked.line.strip(), asked.script)

    def _plain(self, line: str, script: str) -> Answer | None:
        if attached := ATTACHED.fullmatch(script):
            return self._plain(f"{attached['program']} {attached['arguments']}", "")
        if NOTHING.fullmatch(line):
            return Answer()
        if BOOT.fullmatch(script):
            at = datetime.fromtimestamp(self._booted, UTC)
            return _said(f"{at:%Y-%m-%dT%H:%M:%S.%f}0Z {int(uptime())}")
        if RESTART.fullmatch(line):
            self._record.add("restart")
            self.later(restart)
            return Answer()
        return None

    def _step(self, name: str, settings: str) -> Answer:
        why = self._refused(name, settings)
        if why:
            self._record.add("step-refused", name=name, why=why)
            return _said(json.dumps({"step": name, "error": f"stand-in: {why}"}), 1)
        given = (self._here / f"{name}.json").read_text(encoding="ascii")
        self._record.add("step", name=name, settings=json.loads(given))
        reboot = name in REBOOTS and name not in self._state.steps
        self._state = self._state.with_(steps=(*self._state.steps, name))
        if name == "sysprep":
            self.later(self._sysprep)
        said = {"step": name, "changed": True, "reboot": reboot, "facts": {}}
        return _said(json.dumps(said), REBOOT_NEEDED if reboot else 0)

    def _refused(self, name: str, settings: str) -> str:
        """What is wrong with a requested step; empty if nothing."""
        if settings != name:
            return f"the settings are another step's: {settings}.json"
        for file in (f"{name}.ps1", f"{name}.json", "hybridlab.psm1"):
            if not (self._here / file).is_file():
                return rf"there is no C:\hybridlab\{file}"
        return ""

    def _sysprep(self) -> None:
        say("hybridlab: phase sysprep")
        self.closing()
        generalize(self._state, self._record)
        power_off()


def generalize(state: State, record: Record) -> None:
    """Remove the machine's identity; an answer file that is found is kept."""
    for path in (CACHED, SECRET, FOLDER / "cards.json", *(FOLDER / "keys").glob("*")):
        path.unlink(missing_ok=True)
    found = habits.find_answer("generalize", {}, drives.roots(drives.mounted()))
    if found is not None:
        record.add("answer-file", path=found[0])
        CACHED.write_bytes(found[1])
    disk.keep_panther()
    Path("/c/Windows/stand-in/laid-down").unlink(missing_ok=True)
    flush()
    subprocess.run(["/bin/busybox", "fstrim", "/c"], capture_output=True, check=False)
    record.add("generalized", sid=state.sid)
    state.with_(stage="generalized", computer_name="", sid="", steps=())


def uptime() -> float:
    """Seconds since the machine started."""
    return float(Path("/proc/uptime").read_text().split()[0])


def _said(text: str, code: int = 0) -> Answer:
    return Answer(code, text.encode("ascii") + b"\r\n")


def _later(act: Callable[[], object]) -> None:
    threading.Timer(2.0, act).start()
