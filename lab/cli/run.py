"""``lab run``: bring a lab up, test it and take it down, in one process."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from lab._errors import INTERRUPTED, TERMINATED, LabError, UsageError
from lab._log import complain, say
from lab.cli import down, test, up
from lab.cli.complete import selections
from lab.cli.options import json_option, scenario_options, windows_rule_option

if TYPE_CHECKING:
    from lab.lifecycle.api import LabRequest

_SKIP = 125
"""Exit code that tells ``git bisect run`` to skip this commit."""


@click.command("run", context_settings={"ignore_unknown_options": True})
@scenario_options
@windows_rule_option
@click.argument(
    "selection",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[PYTEST OPTIONS]...",
    shell_complete=selections,
)
@click.option("--keep", is_flag=True, help="Leave the lab up if it is not green.")
@click.option("--bisect", is_flag=True, help="Exit with 125 if no cell could be judged.")
@json_option("Print the whole result as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    request: LabRequest,
    selection: tuple[str, ...],
    keep: bool,
    bisect: bool,
    as_json: bool,
) -> int:
    """Bring SCENARIO up, run its connectivity matrix, and take the lab down again.

    pytest's own options choose cells, as in "lab test". The report is kept: "lab report LAB".
    The lab is taken down however the run ends, including on Ctrl-C; with --keep it stays if the
    run is not green. Only the test's result goes to standard output.

    \b
      lab run overlay
      lab run overlay -k "win1 and tcp" --keep
      git bisect run lab run mine.yaml --bisect

    The exit code is that of "lab test", or of "lab up" if the lab does not come up. With
    --bisect it is 0 for a green matrix, 1 for a red one, and 125 for anything else.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.interruption import terminable

    try:
        prepared = api.prepare(request)
        lab = prepared.name
        if api.is_known(lab):
            raise UsageError(
                f"running scenario '{request.scenario}'",
                f"lab '{lab}' already exists",
                f"'lab test {lab}' tests it; another --name makes another lab",
            )
        code = 3
        with terminable():
            try:
                _, sentence = up.bring_up(prepared)
                if sentence:
                    say(sentence)
                code = ctx.invoke(
                    test.command,
                    name=lab,
                    selection=selection,
                    repeat_with="" if keep else f"lab repro {shlex.quote(lab)}",
                    as_json=as_json,
                )
            finally:
                if api.is_known(lab) and not (keep and code):
                    _, sentence = down.take_down(lab)
                    if sentence:
                        say(sentence)
    except LabError as error:
        if not bisect:
            raise
        complain(error)
        return _SKIP
    return code if code in {0, 1, INTERRUPTED, TERMINATED} or not bisect else _SKIP
