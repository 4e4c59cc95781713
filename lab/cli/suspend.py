"""``lab suspend``: put a lab of real machines to sleep on disk."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from lab._log import quantity, say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("suspend")
@lab_argument()
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(name: str, as_json: bool) -> None:
    """Save the memory of LAB's machines to disk and stop them; 'lab up' goes on from there.

    They take no processor and no memory meanwhile, and are back in seconds.
    """
    from lab.lifecycle import api

    say(api.banner(name))
    result = api.suspend(name, say)
    if as_json:
        echo(json.dumps(asdict(result), indent=2))
    elif result.saved:
        saved = quantity(len(result.saved), "machine")
        echo(f"lab '{name}' is suspended: {saved}, in {result.seconds:.1f} s")
    else:
        echo(f"lab '{name}' is suspended already: no machine of it runs")
