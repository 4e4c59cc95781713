"""``lab image inspect``: what an installation medium of Windows holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lab.cli.output import echo


@click.command("inspect")
@click.argument("iso", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(iso: Path, as_json: bool) -> None:
    """Show what Microsoft's installation ISO holds, and which images can be built from it.

    Nothing is taken out of it, and nothing is made.
    """
    from lab.imaging import recipes
    from lab.imaging.windows.medium import read, uses
    from lab.reports import windows_medium

    medium = read(iso)
    known = {name: recipes.load(name).windows for name in recipes.shipped()}
    found = uses(medium, {name: one.wanted for name, one in known.items() if one})
    if as_json:
        echo(json.dumps(windows_medium.document(medium, found), indent=2, default=str))
        return
    for line in windows_medium.lines(medium, found):
        echo(line)
