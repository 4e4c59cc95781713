"""The installed system from its first start on: specialize, OOBE, first logon, and then the
services; after sysprep again as another machine."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from double.drives import named
from stand_in.guest import answer, drives, network, order, services
from stand_in.guest.record import Record
from stand_in.guest.screen import RestartError, StopError, flush, say, show
from stand_in.guest.setup import start_drivers
from stand_in.guest.state import CACHED, FOLDER, SECRET, State, load

NAME = "Unattend.xml"
"""File name searched outside windowsPE."""
RECORD = FOLDER / "record.json"
MIDDLE_SECONDS = 3.0
"""Duration of specialize, so that a watcher with an interval of 1 s sees it start."""


def run() -> None:
    """Continue from the state on the disk; RestartError where Windows restarts."""
    record = Record()
    record.keep(RECORD)
    state = load()
    record.add("start", stage=state.stage)
    if state.stage == "generalized":
        state = _adopt(state, record)
    start_drivers(state.drivers)
    if state.stage == "specialize":
        _specialize(state, _answer(), record)
        raise RestartError
    if state.stage == "oobe":
        state = _first_logon(state, _answer(), record)
    elif state.stage == "installed":
        network.set_up(state.computer_name, _cards())
        services.start(state, record)
    else:
        raise StopError(f"unknown stage {state.stage}")


def _adopt(state: State, record: Record) -> State:
    """The first start of a clone: adopt its new identity."""
    sid = f"S-1-5-21-{uuid.uuid4().int % 10**9}-{uuid.uuid4().int % 10**9}"
    if not CACHED.exists():
        found = drives.in_roots(drives.mounted(), NAME)
        if not found:
            raise StopError(f"no drive has {NAME}: Windows asks for language and password")
        record.add("answer-file", path=str(found[0]))
        CACHED.parent.mkdir(parents=True, exist_ok=True)
        CACHED.write_bytes(found[0].read_bytes())
    else:
        record.add("answer-file", path=str(CACHED))
    return state.with_(stage="specialize", script="clone.ps1", sid=sid, steps=())


def _answer() -> answer.Answer:
    return answer.Answer(CACHED.read_bytes())


def _specialize(state: State, told: answer.Answer, record: Record) -> None:
    """Set the name, and run the commands."""
    if not told.computer_name:
        raise StopError("the answer file has no ComputerName")
    place = "specialize" if state.script == "bootstrap.ps1" else "clone specialize"
    order.run(place, told.commands("specialize/Deployment"), record, say)
    sid = state.sid or f"S-1-5-21-{uuid.uuid4().int % 10**9}-1"
    time.sleep(MIDDLE_SECONDS)
    record.add("name", computer_name=told.computer_name, sid=sid)
    state.with_(stage="oobe", computer_name=told.computer_name.upper(), sid=sid)


def _first_logon(state: State, told: answer.Answer, record: Record) -> State:
    """Run OOBE, autologon, and the commands of the first logon."""
    logon = told.autologon
    if logon is None or not told.password:
        raise StopError("no autologon, or no password: Windows waits at its logon screen")
    if logon.user.lower() != "administrator" or logon.password != told.password:
        raise StopError("autologon: the user name or password is incorrect")
    SECRET.touch(mode=0o600)
    SECRET.write_text(told.password, encoding="utf-8")
    show(f"{state.computer_name}: logged on as {logon.user}")
    record.add("logon", user=logon.user)
    cards = network.cards()
    if state.script == "bootstrap.ps1":
        network.set_up(state.computer_name, None)  # Windows has DHCP from its first start on
    record.add("cards", found=[list(card) for card in cards])
    place = "first-logon" if state.script == "bootstrap.ps1" else "clone first-logon"
    *before, script = told.first_logon or ("",)
    order.run(place, before, record, say)
    record.add("command", place=place, number=len(before) + 1, line=script, run=False)
    if state.script not in script:
        raise StopError(f"the last command of the first logon does not run {state.script}")
    return _script(state, record)


def _script(state: State, record: Record) -> State:
    """Report the script's steps from its text; it is not run."""
    found = drives.in_roots(drives.mounted(), state.script)
    if not found:
        say(f"hybridlab: failed first-logon: no drive has {state.script}")
        raise StopError(f"no drive has {state.script}")
    medium = found[0].parent
    settings = "settings.json" if state.script == "bootstrap.ps1" else "clone.json"
    module = _need(medium, "hybridlab.psm1").read_text(encoding="utf-8-sig")
    told = json.loads(_need(medium, settings).read_text(encoding="ascii"))
    names = order.steps(found[0].read_text(encoding="utf-8-sig"), module)
    for name in names:
        say(f"hybridlab: step {name}")
        record.add("first-logon-step", name=name)
        if why := _why_not(name, state, told, medium):
            say(f"hybridlab: failed {name}: {why}")
            raise StopError(f"step {name}: {why}")
        if name == "cards":
            _set_cards(told["cards"])
            network.set_up(state.computer_name, told["cards"])
            record.add("network", cards=told["cards"])
    return _ready(state, told, record)


def _need(medium: Path, name: str) -> Path:
    path = named(medium, name)
    if path is None:
        raise StopError(f"the medium has no {name}")
    return path


def _why_not(name: str, state: State, told: dict[str, Any], medium: Path) -> str:
    """What a step would find missing; empty if nothing."""
    if name == "guest-tools" and told["virtio"]:
        tools = "virtio-win-guest-tools.exe"
        return "" if drives.in_roots(drives.mounted(), tools) else f"no drive has {tools}"
    if name == "openssh":
        return _why_no_openssh(state, told, medium)
    if name == "identity" and state.computer_name != told["computer_name"].upper():
        return f"the computer is called {state.computer_name}, not {told['computer_name']}"
    if name == "cards":
        there = {mac for _, mac in network.cards()}
        missing = {card["mac"].lower() for card in told["cards"]} - there
        return f"{', '.join(sorted(missing))} missing" if missing else ""
    return ""


def _why_no_openssh(state: State, told: dict[str, Any], medium: Path) -> str:
    if state.script == "clone.ps1":
        return ""  # present since the installation
    if told["openssh"] is None:
        return "Windows Update cannot be reached"
    return "" if named(medium, told["openssh"]) else f"the medium has no {told['openssh']}"


def _set_cards(cards: object) -> None:
    (FOLDER / "cards.json").write_text(json.dumps(cards))


def _cards() -> list[dict[str, object]] | None:
    path = FOLDER / "cards.json"
    return json.loads(path.read_text()) if path.exists() else None


def _ready(state: State, told: dict[str, Any], record: Record) -> State:
    """Create keys, open the ports, and report ready."""
    address = told.get("management_address")
    key, certificate = services.new_keys(
        state.computer_name, str(told["authorized_key"]), str(address or "")
    )
    if state.script == "clone.ps1":
        CACHED.unlink()
    state = replace(state, stage="installed").save()
    services.start(state, record)
    flush()
    say(f"hybridlab: key {key}")
    say(f"hybridlab: certificate {certificate}")
    record.add("ready", key=key, certificate=certificate)
    say("hybridlab: phase ready")
    return state
