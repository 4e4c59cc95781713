"""``lab heal``: take every fault out of a lab."""

from __future__ import annotations

import json

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("heal")
@lab_argument()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, as_json: bool) -> None:
    """Take out of LAB every fault that 'lab fault' has put in.

    It ends when daemons (BIRD, keepalived) have learned again what they lost meanwhile.
    """
    from lab.lifecycle import api
    from lab.lifecycle.faults import heal, words

    say(api.banner(name))
    done = heal(api.open_any(name), say)
    if as_json:
        plain = {
            "mended": [
                {"fault": one.name, "node": one.node, "peer": one.peer} for one in done.mended
            ],
            "rebuilt": [one.name for one in done.rebuilt],
        }
        echo(json.dumps(plain, indent=2))
        return
    for row in done.mended:
        echo(f"mended {words(row)}")
    for row in done.rebuilt:
        echo(f"lab '{name}' was rebuilt since {words(row)} was put in: nothing of it is left")
    if not done.mended and not done.rebuilt:
        echo(f"lab '{name}' has no faults to mend")
