"""``lab list``: every lab of this state directory."""

from __future__ import annotations

import click

from lab._log import ago, heading, say
from lab.cli.options import json_option
from lab.cli.output import echo_json, echo_table


@click.command("list")
@json_option()
def command(as_json: bool) -> None:
    """List the labs that are up, half up, or left behind."""
    from lab.lifecycle import api

    found = api.list_labs()
    if as_json:
        echo_json(found)
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
    echo_table(*rows)
