"""``lab report`` and ``lab diff``: the reports of a run, and what changed between two."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lab._errors import BrokenError, UsageError
from lab._log import say
from lab.cli.complete import labs
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json


@click.command("report")
@lab_argument()
@click.argument("run", required=False)
@json_option("Print the run's whole result as JSON.")
def report_command(name: str, run: str | None, as_json: bool) -> None:
    """Print the path of a run's HTML report: the last run's, or that of RUN.

    RUN is a run's id. Reports are kept after the lab is down.
    """
    from lab.lifecycle import api
    from lab.reports.result import expanded_text

    runs = api.runs(name)
    say(api.banner(name))
    found = [one for one in runs if run in {None, Path(one).name}]
    if not found:
        doing = f"looking for a report of lab '{name}'"
        if run is None:
            raise UsageError(doing, "it has not been tested yet", f"lab test {name}")
        raise UsageError(
            doing,
            f"it has no run '{run}'",
            f"one of: {', '.join(Path(one).name for one in runs)}" if runs else f"lab test {name}",
        )
    wanted = Path(found[-1]) / ("result.json" if as_json else "report.html")
    try:
        text = wanted.read_text(encoding="utf-8")
        shown = expanded_text(text) if as_json else f"{wanted}\n"
    except (OSError, ValueError, BrokenError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = error.strerror or why
        elif isinstance(error, BrokenError):
            why = error.happened
        raise BrokenError(
            f"looking for the report of run '{wanted.parent.name}' of lab '{name}'",
            f"'{wanted}' cannot be read: {why.lower()}",
            f"lab test {name}, or another run",
        ) from error
    echo(shown, nl=False)


@click.command("diff")
@click.argument("before", metavar="RUN", shell_complete=labs)
@click.argument("after", metavar="RUN", shell_complete=labs)
@json_option("Print every changed cell as JSON.")
def diff_command(before: str, after: str, as_json: bool) -> int:
    """Show the cells that changed between two runs, grouped by what they have in common.

    RUN is a run's id, a result.json or its directory, or a lab: its last run, or LAB~1 for the
    one before that, LAB~2 and so on. The two may be of different labs and providers.

    \b
      lab diff overlay~1 overlay         # what the last run changed
      lab diff overlay nightly-overlay   # namespaces, and real machines

    Exit codes: 1 some cells that were as expected no longer are; 0 there are none.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle.runs import find_run
    from lab.reports.difference import compare, comparison_json, plain_lines
    from lab.state.directory import state_directory

    state = state_directory(os.environ)
    made = compare(find_run(before, state), find_run(after, state))
    if as_json:
        echo_json(comparison_json(made), indent=1)
    else:
        echo("\n".join(plain_lines(made)))
    return made.exit_code
