"""``lab down``: take a lab away."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("down")
@lab_argument()
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(name: str, as_json: bool) -> None:
    """Take LAB down; nothing of it is left but the reports of its runs.

    It is found by the marks its objects carry, also when the state file is gone.
    """
    from lab.lifecycle import api

    say(api.banner(name))
    result = api.take_down(name, say)
    if as_json:
        echo(json.dumps(asdict(result), indent=2))
        return
    for removed in result.removed:
        say(f"removed {removed}")
    if result.changed:
        echo(f"lab '{name}' is down")
