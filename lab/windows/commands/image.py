"""Commands of ``lab image`` for Windows: answer files, Microsoft's media, a first Windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._log import say
from lab.cli.complete import images, labs
from lab.cli.options import json_option, output_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.machines.images.terms import Edition, Firmware, Surface
    from lab.windows.images.medium import Channel


@click.command("answer-file")
@click.argument("name", metavar="IMAGE", shell_complete=images)
@click.option(
    "--firmware", type=click.Choice(["bios", "uefi"]), help="Firmware, instead of the image's."
)
@click.option(
    "--edition",
    type=click.Choice(["standard", "datacenter"]),
    help="Edition, instead of the recipe's.",
)
@click.option(
    "--surface", type=click.Choice(["core", "desktop"]), help="Surface, instead of the recipe's."
)
@click.option(
    "--channel",
    type=click.Choice(["evaluation", "volume"]),
    default="evaluation",
    show_default=True,
    help="Licence of the medium: evaluation media take no product key.",
)
@click.option("--clone", is_flag=True, help="Print the answer file of a clone instead.")
def answer_file(
    name: str,
    firmware: Firmware | None,
    edition: Edition | None,
    surface: Surface | None,
    channel: Channel,
    clone: bool,
) -> None:
    """Print the answer file of Windows Setup, without its secrets."""
    from lab.machines import caches as images
    from lab.windows.images.answer import clone_preview, install_preview

    recipe = images.image_store().recipe(name)
    if clone:
        text = clone_preview(recipe)
    else:
        key = images.has_product_key(name)
        text = install_preview(recipe, channel, firmware, edition, surface, has_key=key)
    echo(text, nl=False)


@click.command("check-windows")
@click.argument("name", metavar="IMAGE", shell_complete=images)
@click.argument("lab", required=False, metavar="[LAB]", shell_complete=labs)
@output_option("The file to write (default: first-windows.md).")
def check_windows(name: str, lab: str | None, output: Path | None) -> int:
    """Run the checks of a first real Windows, and write one file to send.

    The checks are those of docs/how-to/first-windows.md: the disk and build log of IMAGE, and the
    Windows nodes of LAB if one is named. Secrets are removed; still, check the file before you
    share it. The exit code is 1 if anything differs.
    """
    from lab.lifecycle.api import open_any
    from lab.machines import caches as images
    from lab.windows.first_windows import report, run

    store = images.image_store()
    opened = open_any(lab) if lab else None
    summary: list[str] = []
    text = report(run(name, store.peek(name), store.logs, opened), summary)
    path = output or Path("first-windows.md")
    path.write_text(text, encoding="utf-8")
    for line in summary:
        say(line)
    echo(path)
    return int(any(" differs: " in line for line in summary))


@click.command("inspect")
@click.argument("iso", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option()
def inspect(iso: Path, as_json: bool) -> None:
    """Show what Microsoft's installation ISO holds, and which images can be built from it.

    Nothing is extracted or built.
    """
    from lab.machines.images import recipes
    from lab.windows import medium_report as windows_medium
    from lab.windows.images.medium import read, uses

    medium = read(iso)
    known = {name: recipes.load(name).windows for name in recipes.shipped()}
    uses_of_medium = uses(medium, {name: needed.wanted for name, needed in known.items() if needed})
    if as_json:
        echo_json(windows_medium.document(medium, uses_of_medium))
        return
    for line in windows_medium.lines(medium, uses_of_medium):
        echo(line)
