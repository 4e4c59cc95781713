"""``lab status``: the state of one lab."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lab._log import ago, say
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.matrix.verdict import Finding


@click.command("status")
@lab_argument()
@click.option("--deep", is_flag=True, help="Compare the state of every machine with the scenario.")
@json_option()
def command(name: str, deep: bool, as_json: bool) -> int:
    """Show the state of LAB: the journal's record, checked against what is there.

    With --deep, links, routes, tunnels, firewall rules, services and programs of every machine
    are compared with what the scenario asks for, and each difference is listed.

    The exit code is 0 for a lab that is up, 1 if --deep finds a difference, and 3 for a lab that
    is not up.
    """
    from lab.lifecycle import api

    found = api.lab_status(name)
    say(api.banner(name))
    up = found.state == "up"
    differences = _differences(name) if deep and up else ()
    code = 3 if not up else 1 if differences else 0
    if as_json:
        from lab.reports.explanation import finding_json

        compared = {"differences": [finding_json(name, one) for one in differences]}
        echo_json(asdict(found) | (compared if deep and up else {}))
        return code
    detail = f": {found.detail}" if found.detail else ""
    echo(f"lab '{found.name}' is {found.state}{detail}")
    echo(f"  scenario   {found.scenario or 'unknown'}")
    echo(f"  provider   {found.provider}")
    echo(f"  created    {ago(found.created)}")
    echo(f"  directory  {found.directory}")
    if found.again and found.state != "up":
        echo(f"  up again   {found.again}")
    for hypervisor, machines in found.hypervisors.items():
        standing = ", ".join(machines) or "nothing runs on it"
        echo(f"  hypervisor {hypervisor}: {standing}")
    for step in found.steps:
        echo(f"  step       {step.name}: {step.state}")
    for fault in found.faults:
        peer = f", peer {fault.peer}" if fault.peer else ""
        half = "" if fault.whole else ", perhaps in part"
        since = f"{fault.name} was put into {fault.node}{peer}{half}, {ago(fault.at)}"
        echo(f"  fault      {since}; 'lab heal {found.name}' removes it")
    for run in found.runs[-3:]:
        counts = ", ".join(f"{number:,} {name}" for name, number in run.counts.items() if number)
        echo(f"  run        {run.run}: {'green' if run.green else 'red'}; {counts}")
    if deep and up and not differences:
        echo("  compared   every machine is as intended")
    for one in differences:
        echo(f"  difference {one.line}")
        echo(f"    see:     {one.shown_by(name)}")
        echo(f"    fix:     {one.fixed_by(name)}")
    return code


def _differences(name: str) -> tuple[Finding, ...]:
    from lab.lifecycle import api
    from lab.lifecycle.explain import find_differences

    return find_differences(api.open_any(name), say)
