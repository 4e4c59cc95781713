"""``lab list``: every lab of this state directory."""

from __future__ import annotations

import click

from lab._log import ago, heading, say
from lab.cli.options import json_option
from lab.cli.output import echo_json, echo_table


@click.command("list")
@json_option()
def command(as_json: bool) -> None:
    """List the labs that are up, partly up, or left behind by killed commands."""
    from lab.lifecycle import api

    statuses = api.list_labs()
    if as_json:
        echo_json(statuses)
        return
    if not statuses:
        say("there are no labs; 'lab up overlay' makes one")
        return
    rows = [("LAB", "STATE", "SCENARIO", "PROVIDER", "CREATED", "")]
    rows += [
        (
            status.name,
            status.state,
            status.scenario or "-",
            status.provider,
            ago(status.created),
            heading(status.detail),
        )
        for status in statuses
    ]
    echo_table(*rows)
