"""``lab list``: every lab of this state directory."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lab._log import heading, say
from lab.cli.output import echo


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """List the labs that are up, half up, or left behind."""
    from lab.lifecycle import api
    from lab.reports.moment import ago

    say(api.banner())
    found = api.list_labs()
    if as_json:
        echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    if not found:
        say("there are no labs; 'lab up overlay' makes one")
        return
    rows = [("LAB", "STATE", "SCENARIO", "PROVIDER", "CREATED", "")]
    rows += [
        (
            one.name,
            one.state,
            one.scenario or "-",
            one.provider,
            ago(one.created),
            heading(one.detail),
        )
        for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        echo("  ".join((*cells, row[-1])).rstrip())
