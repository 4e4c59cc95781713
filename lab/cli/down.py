"""``lab down`` and ``lab suspend``: take a lab down, or save it to disk."""

from __future__ import annotations

import click

from lab._log import quantity, say
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json


@click.command("down")
@lab_argument()
@json_option("Print what was done as JSON.")
def down_command(name: str, as_json: bool) -> None:
    """Take LAB down; only the reports of its runs remain.

    Its objects are found by their ownership marks, so this works without the state file.
    """
    from lab.lifecycle import api

    say(api.banner(name))
    result = api.take_down(name, say)
    if as_json:
        echo_json(result)
        return
    for removed in result.removed:
        say(f"removed {removed}")
    if result.changed:
        echo(f"lab '{name}' is down")


@click.command("suspend")
@lab_argument()
@json_option("Print what was done as JSON.")
def suspend_command(name: str, as_json: bool) -> None:
    """Save the memory of LAB's machines to disk and stop them; 'lab up' resumes them.

    Suspended machines use no CPU and no memory, and resume in seconds.
    """
    from lab.lifecycle import api

    say(api.banner(name))
    result = api.suspend(name, say)
    if as_json:
        echo_json(result)
    elif result.saved:
        saved = quantity(len(result.saved), "machine")
        echo(f"lab '{name}' is suspended: {saved}, in {result.seconds:.1f} s")
    else:
        echo(f"lab '{name}' is already suspended: none of its machines is running")
