"""``lab logs``: the logs of programs on a lab's machines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from lab._deadline import Deadline
from lab._errors import UsageError
from lab._log import say
from lab.cli.complete import machines
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_part, echo_raw, say_disclaimer

if TYPE_CHECKING:
    from lab.lifecycle.open_lab import OpenLab
    from lab.providers.provider import Evidence

_FOLLOW = ("journalctl", "--follow", "--lines=50")
_EVERY_SECONDS = 0.5


@click.command("logs")
@lab_argument()
@click.argument("machine", metavar="[MACHINE]", required=False, shell_complete=machines)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
@json_option(
    "Print one JSON object per log, or per part of a followed one, with its path and text."
)
def command(name: str, machine: str | None, follow: bool, as_json: bool) -> int:
    """Print what programs on LAB, or on one MACHINE of it, have logged.

    On namespaces these are the whole logs of daemons (BIRD, keepalived, HAProxy, OVN). On real
    machines they are the end of each journal and, with a cluster, the end of the logs of its
    programs and pods; there "--follow" needs a MACHINE, and prints its journal. 'lab gather' writes
    all logs to a file.
    """
    from lab.lifecycle.api import open_any
    from lab.lifecycle.open_lab import machine_name
    from lab.providers.provider import LOOK_SECONDS, MACHINES

    opened = open_any(name)
    say_disclaimer(opened)
    action = f"reading the logs of lab '{name}'"
    names = [intent.name for intent in opened.intent.machines]
    chosen = [machine_name(opened, machine, action)] if machine else names

    def read() -> Iterator[Evidence]:
        return opened.provider.logs(opened.handle, opened.intent, chosen, Deadline(LOOK_SECONDS))

    with opened.reached():
        if follow and MACHINES in opened.provider.abilities:
            if as_json:
                hint = (
                    f"lab exec {name} {machine or 'MACHINE'} -- journalctl --follow --output=json"
                )
                raise UsageError(action, "a followed journal is printed as it is", hint)
            return _follow_journal(opened, machine, action)
        opened.require_running(healthy=False)
        shown = ""
        for piece in _follow(opened, read) if follow else read():
            if not piece.is_log:
                say(f"{piece.path}: {piece.content.decode(errors='replace').strip()}")
                continue
            text = piece.content.decode(errors="replace")
            if as_json:
                echo(json.dumps({"path": piece.path, "text": text}))
            else:
                if piece.path != shown:
                    echo(f"==> {piece.path} <==")
                echo(text, nl=False)
            shown = piece.path
            (echo_part if follow else echo_raw)(b"")  # flushes; what follows ends with its reader
        if not shown:
            say(f"no logs: no program of {machine or 'its machines'} has a log")
    return 0


def _follow(opened: OpenLab, read: Callable[[], Iterator[Evidence]]) -> Iterator[Evidence]:
    """The logs, then what is added to them while the lab runs; all of a log that restarted."""
    written: dict[str, bytes] = {}
    for _ in Deadline(math.inf).tries(_EVERY_SECONDS):
        if opened.provider.liveness(opened.handle, opened.intent).state != "running":
            return
        for piece in read():
            before = written.get(piece.path, b"")
            written[piece.path] = piece.content
            if new := piece.content.removeprefix(before):
                yield replace(piece, content=new)


def _follow_journal(opened: OpenLab, machine: str | None, action: str) -> int:
    if machine is None:
        hint = f"lab logs {opened.name} MACHINE --follow"
        raise UsageError(action, "only one machine's journal can be followed", hint)
    if opened.intent.machine(machine).os == "windows":
        hint = f"lab logs {opened.name} {machine}, without --follow"
        raise UsageError(action, f"'{machine}' runs Windows, which has no journal to follow", hint)
    place = opened.provider.machine(opened.handle, opened.intent, machine)
    return place.attach(_FOLLOW)
