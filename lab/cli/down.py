"""``lab down`` and ``lab suspend``: take labs down, or save one to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lab._errors import LabError
from lab._log import complain, quantity, say
from lab.cli.options import json_option, lab_argument, labs_argument
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.lifecycle.down import DownResult


@click.command("down")
@labs_argument
@click.option("--all", "all_labs", is_flag=True, help="Take down every lab of 'lab list'.")
@json_option("Print what was done as JSON: an array with several labs or --all.")
def down_command(names: tuple[str, ...], all_labs: bool, as_json: bool) -> None:
    """Take LAB down; only the reports of its runs remain.

    \b
      lab down overlay
      lab down services kubeinit
      lab down --all

    A lab's objects are found by their ownership marks, so this works without the state file. If
    one of several labs cannot be taken down, the others are; the exit code is that of the first
    one that failed.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api

    if all_labs == bool(names):
        raise click.UsageError("name the labs to take down, or use '--all'")
    chosen = names or tuple(
        status.name for status in api.list_labs() if not api.is_on_existing_cluster(status.name)
    )
    if not chosen:
        say("there are no labs")
    results, errors = [], []
    for name in dict.fromkeys(chosen):
        try:
            result, sentence = take_down(name)
        except LabError as error:
            errors.append(error)
            continue
        results.append(result)
        if sentence and not as_json:
            echo(sentence)
    if as_json and (len(chosen) > 1 or all_labs):
        echo_json(results)
    elif as_json and results:
        echo_json(results[0])
    for other in errors[1:]:
        complain(other)
    if errors:
        raise errors[0]


def take_down(name: str, *, attached: bool = False) -> tuple[DownResult, str]:
    """Take a lab down; return the result, and a sentence about it if anything was done."""
    from lab.lifecycle import api

    result = api.take_down(name, say, attached=attached)
    for removed in result.removed:
        say(f"removed {removed}")
    return result, f"lab '{name}' is down" if result.changed else ""


@click.command("suspend")
@lab_argument()
@json_option("Print what was done as JSON.")
def suspend_command(name: str, as_json: bool) -> None:
    """Save the memory of LAB's machines to disk and stop them; 'lab up' resumes them.

    Suspended machines use no CPU and no memory, and resume in seconds.
    """
    from lab.lifecycle import api

    result = api.suspend(name, say)
    if as_json:
        echo_json(result)
    elif result.saved:
        saved = quantity(len(result.saved), "machine")
        echo(f"lab '{name}' is suspended: {saved}, in {result.seconds:.1f} s")
    else:
        echo(f"lab '{name}' is already suspended: none of its machines is running")
