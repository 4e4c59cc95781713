"""``lab status``: how one lab is."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("status")
@lab_argument()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, as_json: bool) -> int:
    """Say how LAB is: what the journal says, checked against what is there.

    The exit code is 0 for a lab that is up, and 3 for any other.
    """
    from lab.lifecycle import desk
    from lab.reports.moment import ago

    found = desk.look(name)
    say(desk.banner(name))
    if as_json:
        echo(json.dumps(asdict(found), indent=2))
        return 0 if found.state == "up" else 3
    detail = f": {found.detail}" if found.detail else ""
    echo(f"lab '{found.name}' is {found.state}{detail}")
    echo(f"  scenario   {found.scenario or 'unknown'}")
    echo(f"  provider   {found.provider}")
    echo(f"  created    {ago(found.created)}")
    echo(f"  directory  {found.directory}")
    if found.again and found.state != "up":
        echo(f"  up again   {found.again}")
    for hypervisor, machines in found.hypervisors.items():
        standing = ", ".join(machines) or "nothing stands on it"
        echo(f"  hypervisor {hypervisor}: {standing}")
    for step in found.steps:
        echo(f"  step       {step.name}: {step.state}")
    for fault in found.faults:
        peer = f", peer {fault.peer}" if fault.peer else ""
        half = "" if fault.whole else ", perhaps in part"
        since = f"{fault.name} on {fault.node}{peer}{half}, {ago(fault.at)}"
        echo(f"  fault      {since}; 'lab heal {found.name}' takes it out")
    for run in found.runs[-3:]:
        counts = ", ".join(f"{number:,} {name}" for name, number in run.counts.items() if number)
        echo(f"  run        {run.run}: {'green' if run.green else 'red'}; {counts}")
    return 0 if found.state == "up" else 3
