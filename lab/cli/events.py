"""``lab events``: what happened to labs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime

import click

from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_part, echo_raw


@click.command("events")
@lab_argument(required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events.")
@json_option("Print one JSON object per line.")
def command(name: str | None, follow: bool, as_json: bool) -> None:
    """Print when LAB, or each lab, was made, brought up, broken and tested.

    The journal keeps no history: only the latest state of a lab, the faults that are in it, and
    its tests. "--follow" prints every change as it happens, until Ctrl-C.
    """
    from lab.lifecycle import events
    from lab.lifecycle.api import opened_store

    with opened_store() as store:
        for event in events.follow(store, name) if follow else events.read(store, name):
            if as_json:
                echo(json.dumps(asdict(event)))
            else:
                moment = datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
                echo(f"{moment}  {event.lab}  {event.kind:<7}  {event.what}")
            (echo_part if follow else echo_raw)(b"")  # flushes; what follows ends with its reader
