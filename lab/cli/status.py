"""``lab status``: the state of one lab."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lab._log import ago, say
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.explain.lab_queries import NotAsked
    from lab.facts.difference import Difference
    from lab.lifecycle.status import LabStatus


@click.command("status")
@lab_argument(required=False)
@click.option("--deep", is_flag=True, help="Compare the state of every machine with the scenario.")
@json_option("Print JSON: an array without LAB.")
def command(name: str | None, deep: bool, as_json: bool) -> int:
    """Show the state of LAB: the journal's record, checked against what is there.

    Without LAB, the state of every lab of "lab list" is shown.

    With --deep, links, routes, tunnels, firewall rules, services and programs of every machine
    are compared with what the scenario asks for, and each difference is listed.

    The exit code is 0 for a lab that is up, 1 if --deep finds a difference, and 3 for a lab that
    is not up, or whose state --deep cannot read; of several labs, the largest.
    """
    from lab.lifecycle import api

    statuses = (api.lab_status(name),) if name else api.list_labs()
    shown = [_compare(status, deep) for status in statuses]
    if as_json:
        documents = [_json(status, differences) for status, differences in shown]
        echo_json(documents[0] if name else documents)
    elif not shown:
        say("there are no labs; 'lab up overlay' makes one")
    else:
        for place, (status, differences) in enumerate(shown):
            if place:
                echo()
            _show(status, differences)
    return max((_exit_code(status, differences) for status, differences in shown), default=0)


def _compare(status: LabStatus, deep: bool) -> tuple[LabStatus, tuple[Difference, ...] | None]:
    """The status and, of a lab that is up and with ``deep``, its differences."""
    from lab.lifecycle import api
    from lab.lifecycle.explain import find_differences

    if not deep or status.state != "up":
        return status, None
    return status, find_differences(api.open_any(status.name), say)


def _is_unread(finding: Difference) -> bool:
    """Whether it says what could not be read, and not what differs."""
    from lab.facts.difference import SILENT

    return finding.kind == SILENT


def _is_not_asked(finding: Difference) -> bool:
    """Whether it says what the machine lacks the program for, and not what differs."""
    from lab.facts.difference import NOT_ASKED

    return finding.kind == NOT_ASKED


def _exit_code(status: LabStatus, differences: tuple[Difference, ...] | None) -> int:
    if status.state != "up":
        return 3
    if any(_is_unread(difference) for difference in differences or ()):
        return 3
    return 1 if any(not _is_not_asked(difference) for difference in differences or ()) else 0


def _json(status: LabStatus, differences: tuple[Difference, ...] | None) -> dict[str, object]:
    if differences is None:
        return asdict(status)
    from lab.reports.explanation import finding_json

    return asdict(status) | {
        "differences": [
            finding_json(status.name, difference)
            for difference in differences
            if not _is_not_asked(difference)
        ],
        "not_asked": [asdict(queries) for queries in _group_not_asked(differences)],
    }


def _group_not_asked(differences: Iterable[Difference]) -> tuple[NotAsked, ...]:
    from lab.explain.lab_queries import group_not_asked

    return group_not_asked((finding.place, finding) for finding in differences)


def _show(status: LabStatus, differences: tuple[Difference, ...] | None) -> None:
    detail = f": {status.detail}" if status.detail else ""
    disclaimer = f"; {status.disclaimer}" if status.disclaimer else ""
    echo(f"lab '{status.name}' is {status.state}{detail}{disclaimer}")
    echo(f"  scenario   {status.scenario or 'unknown'}")
    echo(f"  provider   {status.provider}")
    echo(f"  created    {ago(status.created)}")
    echo(f"  directory  {status.directory}")
    if status.again and status.state != "up":
        echo(f"  up again   {status.again}")
    for hypervisor, machines in status.hypervisors.items():
        listed = ", ".join(machines) or "no machines"
        echo(f"  hypervisor {hypervisor}: {listed}")
    for node, remark in status.nodes:
        echo(f"  node       {node}: {remark}")
    for step in status.steps:
        echo(f"  step       {step.name}: {step.state}")
    for fault in status.faults:
        peer = f", peer {fault.peer}" if fault.peer else ""
        doubt = "" if fault.whole else ", perhaps incompletely"
        since = f"{fault.name} was put into {fault.node}{peer}{doubt}, {ago(fault.at)}"
        echo(f"  fault      {since}; 'lab heal {status.name}' removes it")
    for run in status.runs[-3:]:
        counts = ", ".join(f"{number:,} {name}" for name, number in run.counts.items() if number)
        echo(f"  run        {run.run}: {'green' if run.green else 'red'}; {counts}")
    if differences is not None:
        _show_differences(status.name, differences)


def _show_differences(lab: str, differences: tuple[Difference, ...]) -> None:
    from lab.reports.explanation import fix_words

    wrong = [difference for difference in differences if not _is_not_asked(difference)]
    if not wrong:
        echo("  compared   every machine is as intended")
    for queries in _group_not_asked(differences):
        echo(f"  not looked at here: {queries.line}")
    for difference in wrong:
        word = "unread    " if _is_unread(difference) else "difference"
        echo(f"  {word} {difference.line}")
        echo(f"    see:     {difference.shown_by(lab)}")
        echo(f"    fix:     {fix_words(lab, difference)}")
