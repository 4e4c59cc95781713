"""``lab gc``: collect what nobody needs any more."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lab._log import quantity, say


@click.command("gc")
@click.option("--older-than", metavar="AGE", help='Also labs not used for so long: "2d", "36h".')
@click.option("--yes", is_flag=True, help="Remove; without it, only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(older_than: str | None, yes: bool, as_json: bool) -> None:
    """Remove what killed commands left behind, and with --older-than forgotten labs.

    Safe to run from cron: a lab that another command is working on is left alone.
    """
    from lab.lifecycle import desk

    say(desk.banner())
    result = desk.collect(older_than, yes, say)
    if as_json:
        click.echo(json.dumps(asdict(result), indent=2, default=str))
        return
    for line in result.removed:
        say(line)
    if result.dry_run and result.found:
        click.echo(f"would remove {quantity(len(result.found), 'lab')}; 'lab gc --yes' does it")
    else:
        click.echo(f"removed {quantity(len(result.removed), 'object')}")
