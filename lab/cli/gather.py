"""``lab gather``: all that is known of a lab, in one archive."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import say
from lab.cli.complete import labs


@click.command("gather")
@click.argument("name", metavar="LAB", shell_complete=labs)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The .tar.gz to write; LAB-evidence-TIME.tar.gz if not given.",
)
def command(name: str, output: Path | None) -> None:
    """Gather evidence of LAB, up, half up or broken, into one archive, and print its path.

    It has the scenario, plan, intent and journal, the last run's results, and what machines,
    consoles and networks show now. Secrets are taken out; look at it all the same before you
    give it away.
    """
    from lab.lifecycle.desk import open_any
    from lab.lifecycle.evidence import gather, subject_of, write

    opened = open_any(name)
    say(opened.banner)
    if output is None:
        click.echo(gather(opened, Path()))
    else:
        write(subject_of(opened), output)
        click.echo(output)
