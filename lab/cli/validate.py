"""``lab validate``: every error of every file, at once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lab._errors import ScenarioError


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def command(files: tuple[str, ...]) -> int:
    """Check scenario files; print every error as FILE:LINE:COLUMN.

    A FILE may also be the name of a scenario that hybridlab ships, such as "overlay".
    """
    from lab.scenario.loader import find, load
    from lab.topology.registry import check

    wrong = 0
    for name in files:
        try:
            scenario = load(find(name), topology_check=check)
        except ScenarioError as error:
            wrong += 1
            click.echo("\n".join(error.lines))
        else:
            click.echo(f'{Path(scenario.path).name}: scenario "{scenario.name}" is valid')
    if wrong:
        click.echo(f"{wrong} of {len(files)} files are wrong", err=True)
    sys.stdout.flush()
    return 2 if wrong else 0
