"""``lab repair``: restore a machine to the state that the lab created."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import places
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json


@click.command("repair")
@lab_argument()
@click.argument("place", metavar="MACHINE|POD", shell_complete=places)
@click.argument("thing", metavar="[OBJECT]", required=False)
@click.option("--commands", is_flag=True, help="Print the commands and run none of them.")
@json_option()
def command(name: str, place: str, thing: str | None, commands: bool, as_json: bool) -> int:
    """Restore a machine or pod of LAB, or one OBJECT on it, to the state that the lab created.

    OBJECT is named as in the output of 'lab explain', where 'fix:' has the whole command.

    \b
      lab repair overlay worker1
      lab repair overlay worker1 'tunnel flannel.4096'
      lab repair overlay worker1 --commands

    The exit code is 0 if nothing differs afterwards, else 1. A fault put in by 'lab fault' stays
    recorded until 'lab heal'.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.repair import repair
    from lab.reports.explanation import finding_json

    opened = api.open_any(name)
    say(opened.banner)
    done = repair(opened, place, thing, say, only_look=commands)
    if as_json:
        differences, left = (
            [finding_json(name, finding) for finding in group]
            for group in (done.differences, done.left)
        )
        echo_json({"lab": name, "place": place, "found": differences, "left": left})
    elif commands:
        for finding in done.differences:
            echo(finding.fixed_by(name))
    else:
        for finding in done.differences:
            if finding not in done.left:
                echo(f"repaired: {finding.line}")
        for finding in done.left:
            echo(f"still differs: {finding.line}")
            echo(f"  fix: {finding.fixed_by(name)}")
        if not done.differences:
            echo(f"'{place}' of lab '{name}' is as the lab made it")
    return 1 if done.left else 0
