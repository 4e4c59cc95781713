"""``lab new``: write a scenario to start from."""

from __future__ import annotations

from pathlib import Path

import click

from lab.cli.complete import topologies
from lab.cli.options import output_option
from lab.cli.output import echo, write_file

_MOST = 100
"""Nodes of each operating system; the draft's network has no room for more."""


@click.command("new")
@click.argument("name")
@click.option(
    "--topology",
    default="overlay",
    show_default=True,
    metavar="KIND",
    help="How the pods of the nodes are connected; an unknown KIND lists all of them.",
    shell_complete=topologies,
)
@click.option(
    "--linux",
    type=click.IntRange(1, _MOST),
    default=2,
    show_default=True,
    help="Number of Linux nodes, including the control plane.",
)
@click.option(
    "--windows",
    type=click.IntRange(0, _MOST),
    default=1,
    show_default=True,
    help="Number of Windows nodes.",
)
@output_option("The file to write (default: NAME.yaml).")
def command(name: str, topology: str, linux: int, windows: int, output: Path | None) -> None:
    """Write a scenario to start from, NAME.yaml, with a comment for each key.

    \b
      lab new mine --topology host-gateway --linux 3 --windows 1
      lab run mine.yaml

    An existing file is not overwritten.
    """  # noqa: D301  \b tells click not to rewrap
    from lab._errors import UsageError
    from lab.lifecycle.draft import draft

    text = draft(name, topology, linux, windows)
    path, doing = output or Path(f"{name}.yaml"), f"writing scenario '{name}'"
    if path.exists() and path.is_file():
        raise UsageError(doing, f"'{path}' already exists", "use another name, or another -o")
    write_file(path, text.encode(), doing)
    echo(path)
