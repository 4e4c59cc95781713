"""``lab diff``: what changed between two runs."""

from __future__ import annotations

import json
import os

import click

from lab.cli.complete import labs
from lab.cli.output import echo


@click.command("diff")
@click.argument("before", metavar="RUN", shell_complete=labs)
@click.argument("after", metavar="RUN", shell_complete=labs)
@click.option("--json", "as_json", is_flag=True, help="Print every changed cell as JSON.")
def command(before: str, after: str, as_json: bool) -> int:
    """Show the cells that changed from one run to another, by what they have in common.

    RUN is a run's id, a result.json or its directory, or a lab: its last run, or LAB~1 for the
    one before that, LAB~2 and so on. The two may be of different labs and providers.

    \b
      lab diff overlay~1 overlay            what the last run changed
      lab diff overlay nightly-overlay      namespaces, and real machines

    Exit codes: 1 cells that were as expected are not any more; 0 there are none of those.
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    from lab.lifecycle.runs import find_run
    from lab.reports.comparison import compare, comparison_json, plain_lines
    from lab.state.directory import state_directory

    state = state_directory(os.environ)
    made = compare(find_run(before, state), find_run(after, state))
    if as_json:
        echo(json.dumps(comparison_json(made), indent=1))
    else:
        echo("\n".join(plain_lines(made)))
    return made.exit_code
