"""``lab logs``: the logs of programs on a lab's machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import say
from lab.cli.complete import machines
from lab.cli.options import lab_argument
from lab.cli.output import echo, echo_raw

if TYPE_CHECKING:
    from lab.lifecycle.session import OpenLab

_FOLLOW = ("journalctl", "--follow", "--lines=50")


@click.command("logs")
@lab_argument()
@click.argument("machine", metavar="[MACHINE]", required=False, shell_complete=machines)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines.")
def command(name: str, machine: str | None, follow: bool) -> int:
    """Print what programs on LAB, or on one MACHINE of it, have logged.

    On namespaces these are the whole logs of daemons (BIRD, keepalived, HAProxy, OVN). On real
    machines they are the end of each journal and, with a cluster, the end of the logs of its
    programs and pods; there "--follow" needs a MACHINE, and prints its journal. 'lab gather' writes
    all logs to a file.
    """
    from lab.lifecycle import logs
    from lab.lifecycle.access import machine_name
    from lab.lifecycle.api import open_any
    from lab.providers.provider import MACHINES

    opened = open_any(name)
    say(opened.banner)
    doing = f"reading the logs of lab '{name}'"
    asked = [machine_name(opened, machine, doing)] if machine else logs.everywhere(opened)
    with opened.reached():
        if follow and MACHINES in opened.provider.abilities:
            return _journal(opened, machine, doing)
        opened.require_running(well=False)
        shown = ""
        for piece in logs.follow(opened, asked) if follow else logs.read(opened, asked):
            if not piece.is_log:
                say(f"{piece.path}: {piece.content.decode(errors='replace').strip()}")
                continue
            if piece.path != shown:
                echo(f"==> {piece.path} <==")
                shown = piece.path
            echo(piece.content.decode(errors="replace"), nl=False)
            echo_raw("")  # flushes standard output
        if not shown:
            say(f"no logs: no program of {machine or 'its machines'} has a log")
    return 0


def _journal(opened: OpenLab, machine: str | None, doing: str) -> int:
    if machine is None:
        hint = f"lab logs {opened.name} MACHINE --follow"
        raise UsageError(doing, "only one machine's journal can be followed", hint)
    if opened.intent.machine(machine).os == "windows":
        hint = f"lab logs {opened.name} {machine}, without --follow"
        raise UsageError(doing, f"'{machine}' runs Windows, which has no journal to follow", hint)
    place = opened.provider.machine(opened.handle, opened.intent, machine)
    return place.attach(_FOLLOW)
