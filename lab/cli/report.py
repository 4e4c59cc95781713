"""``lab report``: where the reports of a lab's runs are."""

from __future__ import annotations

from pathlib import Path

import click

from lab._errors import BrokenError, UsageError
from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("report")
@lab_argument()
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the run's whole result as JSON.")
def command(name: str, run: str | None, as_json: bool) -> None:
    """Print the path of a run's HTML report: the last run's, or that of RUN.

    RUN is a run's id. Reports stay after the lab is down.
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
        told = expanded_text(text) if as_json else f"{wanted}\n"
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
    echo(told, nl=False)
