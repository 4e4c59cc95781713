"""``lab gather``: everything known about a lab, in one archive."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import say
from lab.cli.options import lab_argument, output_option
from lab.cli.output import echo


@click.command("gather")
@lab_argument()
@output_option("The .tar.gz file to write, or a directory for it (default: here).")
def command(name: str, output: Path | None) -> None:
    """Gather evidence of LAB, whatever its state, into one archive, and print its path.

    The archive has the scenario, plan, intent and journal, the last run's results, and the current
    state of machines, consoles and networks. Secrets are removed; still, check it before you
    share it.
    """
    from lab.lifecycle.api import open_any
    from lab.lifecycle.evidence import gather

    opened = open_any(name)
    echo(gather(opened, output or Path(), say))
