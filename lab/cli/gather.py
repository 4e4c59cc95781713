"""``lab gather``: all that is known of a lab, in one archive."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import say
from lab.cli.options import lab_argument
from lab.cli.output import echo


@click.command("gather")
@lab_argument()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The .tar.gz file to write, or a directory for it (default: here).",
)
def command(name: str, output: Path | None) -> None:
    """Gather evidence of LAB, up, half up or broken, into one archive, and print its path.

    It has the scenario, plan, intent and journal, the last run's results, and what machines,
    consoles and networks show now. Secrets are taken out; look at it all the same before you
    give it away.
    """
    from lab.lifecycle.api import open_any
    from lab.lifecycle.evidence import gather

    opened = open_any(name)
    say(opened.banner)
    echo(gather(opened, output or Path()))
