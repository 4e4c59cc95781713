"""``lab report`` and ``lab diff``: the reports of a run, and what changed between two."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from lab._errors import BrokenError, PreflightError
from lab._log import say
from lab.cli.complete import labs, runs
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json


@click.command("report")
@lab_argument()
@click.argument("run", required=False, shell_complete=runs)
@click.option("--open", "in_browser", is_flag=True, help="Open the report in a browser, too.")
@json_option("Print the run's whole result as JSON.")
def report_command(name: str, run: str | None, in_browser: bool, as_json: bool) -> None:
    """Print the path of the HTML report of LAB's last run, or of RUN.

    RUN is a run's id; LAB~1 is the run before the last of LAB, LAB~2 the one before that, and so
    on. Reports are kept after the lab is down.

    \b
      lab report overlay --open
      lab report overlay~1
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.runs import chosen_run
    from lab.reports.result import expanded_text
    from lab.state.failure import exhausted
    from lab.state.files import read_regular

    name, directory = chosen_run(name, run)
    say(api.banner(name))
    wanted = directory / ("result.json" if as_json else "report.html")
    try:
        text = read_regular(wanted).decode()
        shown = expanded_text(text) if as_json else f"{wanted}\n"
    except (OSError, ValueError, BrokenError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = error.strerror or why
        elif isinstance(error, BrokenError):
            why = error.happened
        action = f"looking for the report of run '{wanted.parent.name}' of lab '{name}'"
        raise exhausted(error, action) or BrokenError(
            action,
            f"'{wanted}' cannot be read: {why.lower()}",
            f"lab test {name}, or another run",
        ) from error
    echo(shown, nl=False)
    if in_browser:
        _open(directory / "report.html")


def _open(report: Path) -> None:
    """Open a report in the user's browser: of the commands in $BROWSER, the first that succeeds.

    Raises PreflightError if there is none.
    """
    import webbrowser

    commands = [text for text in os.environ.get("BROWSER", "").split(os.pathsep) if text]
    for text in commands:
        with suppress(ValueError, webbrowser.Error):  # a quotation mark that is not closed
            whole = f"{text} %s" if " " in text and "%s" not in text else text
            if webbrowser.get(whole).open(report.as_uri()):
                return
    if not commands and webbrowser.open(report.as_uri()):
        return
    raise PreflightError(
        f"opening '{report}'",
        f"$BROWSER is '{os.environ['BROWSER']}', which failed or is not there"
        if commands
        else "no browser was found on this machine",
        "set $BROWSER to the command of one, or copy the file to where there is one",
    )


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
