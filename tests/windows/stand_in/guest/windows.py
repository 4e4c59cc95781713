"""The installed system from its first start on: specialize, OOBE, first logon, and then the
services; after sysprep again as another machine.

Commands that come over WinRM and SSH are recorded, compared, never run. Steps (``-File
C:\\hybridlab\\NAME.ps1 -Settings C:\\hybridlab\\NAME.json``) are answered without claiming any
effect. Only commands about this machine itself have one: start time, restart, generalizing. All
others are unknown, which the double answers with exit code 1.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from double.certificates import make_certificate, make_host_key
from double.drives import named
from double.script import Answer as Told
from double.script import Asked, Script
from double.shells import Shells
from double.sshd import Sshd, SshService
from double.wsman import Service, WsMan
from stand_in.guest import habits, machine, setup
from stand_in.guest.machine import CACHED, FOLDER, SECRET, State, StopError, record, say
from stand_in.guest.setup import Answer

NAME = "Unattend.xml"
"""File name searched outside windowsPE."""
KEYS, CARDS, HERE = FOLDER / "keys", FOLDER / "cards.json", Path("/c/hybridlab")
MIDDLE_SECONDS = 3.0
"""Duration of specialize, so that a watcher with an interval of 1 s sees it start."""
_STEP = re.compile(r"^    '(?P<name>[a-z0-9-]+)' = \{$", re.MULTILINE)
_TABLE = re.compile(r"^\$steps = \[ordered\]@\{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)
_AT = re.compile(r"^\s+\$at = '(?P<name>[a-z0-9-]+)'$", re.MULTILINE)
_LOGON = re.compile(r"^function Invoke-FirstLogon \{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)
_SYSTEM = r"(?i)^(?:C:\\Windows\\System32\\)?"
STEP = re.compile(
    rf"{_SYSTEM}(?:WindowsPowerShell\\v1\.0\\)?powershell\.exe -NoProfile -NonInteractive "
    r"-ExecutionPolicy Bypass -File C:\\hybridlab\\(?P<name>[a-z0-9-]+)\.ps1 "
    r"-Settings C:\\hybridlab\\(?P=name)\.json$"
)
ATTACHED = re.compile(
    r"(?s)\$start\.FileName = '(?P<program>[^'\n]+)'\n"
    r"\$start\.Arguments = '(?P<arguments>[^'\n]*)'\n.*\$process\.WaitForExit\(\)\n"
)
"""A program on the user's terminal, of ``lab exec``."""
BOOT = r"\$system\.LastBootUpTime\..*'\{0:o\} \{1:0\}' -f \$boot, \$up\n"
REBOOTS = ("features", "settings")
"""Steps that ask for a restart at their first run."""


def run() -> None:
    """Continue from the state on the disk; RestartError where Windows restarts."""
    state = machine.load()
    record("start", stage=state.stage)
    if state.stage == "generalized":
        state = _adopt(state)
    machine.start_drivers(state.drivers)
    if state.stage == "specialize":
        _specialize(state, Answer(CACHED.read_bytes()))
        raise machine.RestartError
    if state.stage == "oobe":
        _first_logon(state, Answer(CACHED.read_bytes()))
    elif state.stage == "installed":
        cards = json.loads(CARDS.read_text()) if CARDS.exists() else None
        machine.set_up_network(state.computer_name, cards)
        Shell(state).start()
    else:
        raise StopError(f"unknown stage {state.stage}")


def _adopt(state: State) -> State:
    """The first start of a clone: adopt its new identity."""
    if CACHED.exists():
        record("answer-file", path=str(CACHED))
    else:
        roots = machine.in_roots(machine.mounted(), NAME)
        if not roots:
            raise StopError(f"no drive has {NAME}: Windows asks for language and password")
        record("answer-file", path=str(roots[0]))
        CACHED.parent.mkdir(parents=True, exist_ok=True)
        CACHED.write_bytes(roots[0].read_bytes())
    return state.with_(stage="specialize", script="clone.ps1")


def _specialize(state: State, answer: Answer) -> None:
    """Set the name, and run the commands."""
    name = answer.text("specialize/Shell-Setup", "ComputerName")
    if not name:
        raise StopError("the answer file has no ComputerName")
    place = "specialize" if state.script == "bootstrap.ps1" else "clone specialize"
    setup.run_commands(place, answer.commands("specialize/Deployment"))
    time.sleep(MIDDLE_SECONDS)
    sid = f"S-1-5-21-{uuid.uuid4().int % 10**9}-{uuid.uuid4().int % 10**9}"
    record("name", computer_name=name, sid=sid)
    state.with_(stage="oobe", computer_name=name.upper(), sid=sid)


def _first_logon(state: State, answer: Answer) -> None:
    """Run OOBE, autologon, and the commands of the first logon."""
    shell = "oobeSystem/Shell-Setup"
    password = answer.password("UserAccounts/AdministratorPassword")
    if answer.text(shell, "AutoLogon/Enabled") != "true" or not password:
        raise StopError("no autologon, or no password: Windows waits at its logon screen")
    user, given = answer.text(shell, "AutoLogon/Username"), answer.password("AutoLogon/Password")
    if (user.lower(), given) != ("administrator", password):
        raise StopError("autologon: the user name or password is incorrect")
    SECRET.touch(mode=0o600)
    SECRET.write_text(password, encoding="utf-8")
    machine.show(f"{state.computer_name}: logged on as {user}")
    record("logon", user=user, cards=machine.cards())
    place = "clone first-logon"
    if state.script == "bootstrap.ps1":
        place = "first-logon"
        machine.set_up_network(state.computer_name, None)  # Windows has DHCP from its first start
    found = answer.all(shell, "FirstLogonCommands/SynchronousCommand")
    *before, script = [one["CommandLine"] for one in found] or [""]
    setup.run_commands(place, before)
    record("command", place=place, number=len(found), line=script, run=False)
    if state.script not in script:
        raise StopError(f"the last command of the first logon does not run {state.script}")
    _run_script(state)


def _run_script(state: State) -> None:
    """Report the script's steps from its text; it is not run."""
    roots = machine.in_roots(machine.mounted(), state.script)
    if not roots:
        say(f"hybridlab: failed first-logon: no drive has {state.script}")
        raise StopError(f"no drive has {state.script}")
    medium = roots[0].parent
    settings = "settings.json" if state.script == "bootstrap.ps1" else "clone.json"
    told = json.loads(_read(medium, settings))
    for name in _steps(_read(medium, state.script), _read(medium, "hybridlab.psm1")):
        say(f"hybridlab: step {name}")
        record("first-logon-step", name=name)
        if why := _why_not(name, state, told, medium):
            say(f"hybridlab: failed {name}: {why}")
            raise StopError(f"step {name}: {why}")
        if name == "cards":
            CARDS.write_text(json.dumps(told["cards"]))
            machine.set_up_network(state.computer_name, told["cards"])
            record("network", cards=told["cards"])
    _get_ready(state, told)


def _read(medium: Path, name: str) -> str:
    path = named(medium, name)
    if path is None:
        raise StopError(f"the medium has no {name}")
    return path.read_text(encoding="utf-8-sig")


def _steps(script: str, module: str) -> list[str]:
    """Names of a first-logon script's steps, as it would report them; StopError if none is found.

    They are read from the table ``$steps``, between Invoke-FirstLogon's first and last steps.
    """
    table, around = _TABLE.search(script), _LOGON.search(module)
    if table is None or around is None:
        raise StopError("the script has no table of steps, or its module no Invoke-FirstLogon")
    inside, outside = _STEP.findall(table["body"]), _AT.findall(around["body"])
    if not inside or len(outside) != 2:
        raise StopError(f"steps {inside} between {outside}: another script than is known here")
    return [outside[0], *inside, outside[1]]


def _why_not(name: str, state: State, told: dict[str, Any], medium: Path) -> str:
    """What a step would find missing; empty if nothing."""
    if name == "drivers" and told["storage"] == "virtio":
        drives = machine.mounted()
        return "" if machine.in_roots(drives, "drivers") else "no drive has a folder drivers"
    if name == "openssh" and state.script == "bootstrap.ps1":
        if told["openssh"] is None:
            return "Windows Update cannot be reached"
        return "" if named(medium, told["openssh"]) else f"the medium has no {told['openssh']}"
    if name == "identity" and state.computer_name != told["computer_name"].upper():
        return f"the computer is called {state.computer_name}, not {told['computer_name']}"
    if name == "cards":
        cards = {mac for _, mac in machine.cards()}
        missing = {card["mac"].lower() for card in told["cards"]} - cards
        return f"{', '.join(sorted(missing))} missing" if missing else ""
    return ""


def _get_ready(state: State, told: dict[str, Any]) -> None:
    """Create keys, open the ports, and report ready."""
    KEYS.mkdir(parents=True, exist_ok=True)
    (KEYS / "authorized_keys").write_text(told["authorized_key"].strip() + "\n")
    key = " ".join(make_host_key(KEYS / "host_key").split()[:2])
    address = {"address": told["management_address"]} if told.get("management_address") else {}
    pair = KEYS / "certificate.pem", KEYS / "private.pem"
    certificate = make_certificate(*pair, state.computer_name, **address)
    if state.script == "clone.ps1":
        CACHED.unlink()
    Shell(state.with_(stage="installed")).start()
    machine.busybox("sync")
    say(f"hybridlab: key {key}")
    say(f"hybridlab: certificate {certificate}")
    record("ready", key=key, certificate=certificate)
    say("hybridlab: phase ready")


class Shell:
    """WinRM and SSH of the installed system: the double, with this machine's keys and answers."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._booted = datetime.fromtimestamp(time.time() - _uptime(), UTC)
        self._lock = threading.Lock()
        self._script = Script()
        self._script.on(STEP.pattern, self._step)
        self._script.on(rf"{_SYSTEM}cmd\.exe /d /c exit 0$", Told())
        self._script.on(rf"{_SYSTEM}shutdown\.exe /r /f /t 0$", self._restart)
        self._script.on(BOOT, self._boot)
        self._script.on(ATTACHED.pattern, self._attached)
        drives = Path("/drives")
        drives.mkdir(exist_ok=True)
        (drives / "C").symlink_to("/c")
        HERE.mkdir(exist_ok=True)
        user, password = "Administrator", SECRET.read_text(encoding="utf-8")
        self._winrm = WsMan(
            Service(user, password, Shells(self)),
            *("0.0.0.0", 5986, KEYS / "certificate.pem", KEYS / "private.pem"),
        )
        keys = KEYS / "host_key", KEYS / "authorized_keys"
        self._ssh = Sshd(SshService(user, *keys, drives, self), "0.0.0.0", 22)

    def start(self) -> None:
        """Listen on 22 and 5986 until the machine shuts down."""
        self._winrm.start()
        self._ssh.start()

    def __call__(self, asked: Asked) -> Told | None:
        with self._lock:
            record("asked", via=asked.via, line=asked.script or asked.line)
            return self._script(asked)

    def _attached(self, asked: Asked) -> Told | None:
        match = ATTACHED.search(asked.script)
        return self._script(Asked(f"{match['program']} {match['arguments']}")) if match else None

    def _boot(self, _: Asked) -> Told:
        return _said(f"{self._booted:%Y-%m-%dT%H:%M:%S.%f}0Z {int(_uptime())}")

    def _restart(self, _: Asked) -> Told:
        record("restart")
        _later(lambda: machine.power("reboot"))
        return Told()

    def _step(self, asked: Asked) -> Told:
        match = STEP.search(asked.line)
        assert match is not None
        name = match["name"]
        for file in (f"{name}.ps1", f"{name}.json", "hybridlab.psm1"):
            if not (HERE / file).is_file():
                why = rf"there is no C:\hybridlab\{file}"
                record("step-refused", name=name, why=why)
                return _said(json.dumps({"step": name, "error": f"stand-in: {why}"}), 1)
        given = (HERE / f"{name}.json").read_text(encoding="ascii")
        record("step", name=name, settings=json.loads(given))
        reboot = name in REBOOTS and name not in self._state.steps
        self._state = self._state.with_(steps=(*self._state.steps, name))
        if name == "sysprep":
            _later(self._generalize)
        said = {"step": name, "changed": True, "reboot": reboot, "facts": {}}
        return _said(json.dumps(said), 3010 if reboot else 0)

    def _generalize(self) -> None:
        """Remove the machine's identity; an answer file that is found is kept."""
        say("hybridlab: phase sysprep")
        self._winrm.stop()
        self._ssh.stop()
        for path in (CACHED, SECRET, CARDS, *KEYS.glob("*")):
            path.unlink(missing_ok=True)
        answer = habits.find_answer("generalize", {}, machine.roots(machine.mounted()))
        if answer is not None:
            record("answer-file", path=answer[0])
            CACHED.write_bytes(answer[1])
        setup.keep_panther()
        Path("/c/Windows/stand-in/laid-down").unlink(missing_ok=True)
        machine.busybox("sync")
        machine.busybox("fstrim", "/c")
        record("generalized", sid=self._state.sid)
        self._state.with_(stage="generalized", computer_name="", sid="", steps=())
        machine.power("poweroff")


def _uptime() -> float:
    """Seconds since the machine started."""
    return float(Path("/proc/uptime").read_text().split()[0])


def _said(text: str, code: int = 0) -> Told:
    return Told(code, text.encode("ascii") + b"\r\n")


def _later(act: Callable[[], object]) -> None:
    """After the answer to this command."""
    threading.Timer(2.0, act).start()
