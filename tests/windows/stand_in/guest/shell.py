r"""Commands that come over WinRM and SSH: recorded, compared, never run.

Steps (``-File C:\hybridlab\NAME.ps1 -Settings C:\hybridlab\NAME.json``) are compared with the
golden order and answered as a stand-in's. Restarts and sysprep are real: this machine's own.
What is not known here is answered by nobody, and so with exit code 1.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from double.script import Answer, Asked

from stand_in.guest import mutants
from stand_in.guest.record import Record
from stand_in.guest.screen import power_off, restart, say
from stand_in.guest.state import CACHED, SECRET, State

HERE = Path("/c/hybridlab")
STEP = re.compile(
    r"(?i)powershell\.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass "
    r'-File "?C:\\hybridlab\\(?P<name>[a-z0-9-]+)\.ps1"? '
    r'-Settings "?C:\\hybridlab\\(?P<settings>[a-z0-9-]+)\.json"?'
)
REBOOT_NEEDED = 3010
GENERALIZES = ("sysprep.exe", "/generalize", "/oobe", "/shutdown", "Remove-AnswerFile")
"""What sysprep.ps1 has to hold for this machine to be generalized by it."""


class Shell:
    """Answers, for :mod:`double`."""

    def __init__(self, state: State, record: Record, here: Path = HERE) -> None:
        self._state = state
        self._record = record
        self._here = here
        self._lock = threading.Lock()
        self.closing: Callable[[], object] = lambda: None

    def __call__(self, asked: Asked) -> Answer | None:
        with self._lock:
            self._record.add("asked", via=asked.via, line=asked.line, script=asked.script)
            step = STEP.fullmatch(asked.line.strip())
            if step is not None:
                return self._step(step["name"], step["settings"])
            return self._plain(asked)

    def _plain(self, asked: Asked) -> Answer | None:
        text = asked.script or asked.line
        if "LastBootUpTime" in text:
            return _said(boot_time())
        if re.fullmatch(r"(?i)shutdown(\.exe)? /r /f? ?/t \d+.*", asked.line) or (
            re.search(r"(?i)\bRestart-Computer\b|\bshutdown(\.exe)?['\"]? /r\b", text)
        ):
            self._record.add("restart")
            _later(restart)
            return Answer()
        return None

    def _step(self, name: str, settings: str) -> Answer:
        why = self._refused(name, settings)
        if why:
            self._record.add("step-refused", name=name, why=why)
            return _told({"step": name, "error": f"stand-in: {why}"}, 1)
        self._record.add("step", name=name, settings=self._settings(name))
        self._state = self._state.with_(steps=(*self._state.steps, name))
        reboot = name == "features" and self._state.steps.count(name) == 1
        if name == "sysprep":
            self._sysprep()
        said = {"step": name, "changed": True, "reboot": reboot, "facts": self._facts(name)}
        return _told(said, REBOOT_NEEDED if reboot else 0)

    def _refused(self, name: str, settings: str) -> str:
        """What is wrong with a step that is asked for; empty where nothing is."""
        for file in (f"{name}.ps1", f"{name}.json", "hybridlab.psm1"):
            if not (self._here / file).is_file():
                return f"there is no C:\\hybridlab\\{file}"
        if settings != name:
            return f"the settings of another step: {settings}.json"
        golden = list(self._state.golden.get("steps", ()))
        done = list(dict.fromkeys((*self._state.steps, name)))
        if self._state.script == "bootstrap.ps1" and done != golden[: len(done)]:
            return f"order of steps: {done} is not the beginning of {golden}"
        text = (self._here / f"{name}.ps1").read_text(encoding="utf-8-sig")
        missing = [word for word in GENERALIZES if word not in text] if name == "sysprep" else []
        return f"sysprep.ps1 has no {missing}" if missing else ""

    def _settings(self, name: str) -> Any:
        return json.loads((self._here / f"{name}.json").read_text(encoding="utf-8-sig"))

    def _facts(self, name: str) -> dict[str, Any]:
        facts: dict[str, Any] = {"stand-in": True}
        if name == "patch-level":
            facts |= {"build": self._state.build, "revision": self._state.revision}
        if name == "sysprep-prepare":
            facts |= {"packages": [], "sid": self._state.sid}
        return facts

    def _sysprep(self) -> None:
        def go() -> None:
            time.sleep(2.0)
            say("hybridlab: phase sysprep")
            self.closing()
            if self._state.mutant == mutants.SYSPREP:
                return
            generalize(self._state, self._record)
            power_off()

        threading.Thread(target=go, daemon=True).start()


def generalize(state: State, record: Record) -> None:
    """Take away what makes it one certain machine."""
    for path in (CACHED, SECRET, *SECRET.parent.glob("keys/*"), SECRET.parent / "cards.json"):
        path.unlink(missing_ok=True)
    Path("/c/Windows/stand-in/laid-down").unlink(missing_ok=True)
    record.add("generalized", sid=state.sid)
    state.with_(stage="generalized", computer_name="", sid="", steps=(), mutant="", restarts=0)


def boot_time() -> str:
    """When this machine started, as PowerShell's round-trip format has it."""
    seconds = float(Path("/proc/uptime").read_text().split()[0])
    return (datetime.now(timezone.utc) - timedelta(seconds=seconds)).strftime(
        "%Y-%m-%dT%H:%M:%S.0000000Z"
    )


def _told(document: dict[str, Any], code: int) -> Answer:
    return Answer(code, json.dumps(document).encode() + b"\r\n")


def _said(text: str) -> Answer:
    return Answer(0, text.encode() + b"\r\n")


def _later(act: Callable[[], object]) -> None:
    threading.Timer(1.0, act).start()
