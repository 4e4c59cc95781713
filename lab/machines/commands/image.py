"""``lab image``: build, list, show and collect golden images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._log import ago, say
from lab.cli.commands import Commands
from lab.cli.complete import images, labs
from lab.cli.options import json_option
from lab.cli.output import echo, echo_collected, echo_json, echo_table

if TYPE_CHECKING:
    from lab.machines.images.terms import Firmware


@click.group("image", cls=Commands)
def command() -> None:
    """Build and keep the disks that real machines are cloned from.

    An image is built once for all labs, and named by the digest of its inputs.
    """


@command.command("build")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=images)
@click.option(
    "--iso",
    type=click.Path(path_type=Path),
    help="Microsoft's installation medium, for an image of Windows.",
)
@click.option(
    "--virtio-win", type=click.Path(path_type=Path), help="The virtio-win ISO, with its drivers."
)
@click.option(
    "--openssh",
    type=click.Path(path_type=Path),
    help="Win32-OpenSSH's OpenSSH-Win64.zip; without it Windows fetches its own from the network.",
)
@click.option(
    "--firmware",
    type=click.Choice(["bios", "uefi"]),
    help="Firmware of machines made from a Windows image, instead of the recipe's.",
)
@json_option("Print the images as JSON.")
def build(
    *,
    names: tuple[str, ...],
    iso: Path | None,
    virtio_win: Path | None,
    openssh: Path | None,
    firmware: Firmware | None,
    as_json: bool,
) -> None:
    """Build images that do not exist yet, and print the paths of their disks.

    The paths of media and the firmware are remembered for later commands such as 'lab up'. The
    inventory's [images.NAME], [images.virtio-win] and [images.openssh-windows] give paths of media,
    too; an option that contradicts them is refused. If this command is stopped, an installation of
    Windows continues: the same command resumes it, and 'lab image gc --yes' removes it.
    """
    from lab.machines import caches as images

    given = {"iso": iso, "virtio-win": virtio_win, "openssh": openssh}
    files = {name: path for name, path in given.items() if path is not None}
    made = [images.build(name, files, say, firmware) for name in names]
    if as_json:
        echo_json(made)
        return
    for image in made:
        echo(image.disk)


@command.command("list")
@json_option()
def list_images(as_json: bool) -> None:
    """List every image recipe, and whether its image has been built."""
    from lab.machines.caches import image_store

    listed = image_store().list()
    if as_json:
        echo_json(listed)
        return
    rows = [("IMAGE", "KIND", "STATE", "SIZE", "")]
    for image in listed:
        size = f"{image.bytes / 1e6:.0f} MB" if image.bytes else "-"
        rows.append((image.name, image.kind, image.state, size, image.detail))
    echo_table(*rows)


@command.command("show")
@click.argument("name", shell_complete=images)
@json_option("Print JSON, with every package.")
def show(name: str, as_json: bool) -> None:
    """Show how a built image boots, which user logs in, and its packages."""
    from lab.machines.caches import image_store

    facts = image_store().show(name)
    if as_json:
        echo_json(facts)
        return
    echo(f"image '{facts.name}': {facts.summary}")
    echo(f"digest     {facts.digest}")
    echo(f"built      {ago(facts.built)}")
    echo(f"machine    {facts.architecture}, disk of {facts.virtual_gib} GiB")
    boots = f"{facts.firmware} {facts.arguments}".strip()
    echo(f"boots by   {boots}")
    echo(f"first boot {facts.first_boot}; '{facts.user}' logs in with the lab's key")
    if facts.packages:
        echo(f"packages   {len(facts.packages)}; 'lab image show {name} --json' lists them")


@command.command("import")
@click.argument("lab", metavar="LAB", shell_complete=labs)
@click.argument(
    "archives",
    nargs=-1,
    required=True,
    metavar="ARCHIVE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
def import_archives(lab: str, archives: tuple[Path, ...]) -> None:
    """Load container images into the nodes of LAB's cluster, and print their names.

    An archive is a file of 'docker save', 'skopeo copy ... oci-archive:FILE' or 'ctr images
    export', uncompressed. Images for Linux go to Linux nodes, those for Windows to Wine nodes: of
    these the files above Windows itself are used. A pod that uses such an image needs
    "imagePullPolicy: IfNotPresent" or "Never": labs reach no registry.
    """
    from lab.lifecycle.api import open_any
    from lab.machines.caches import import_images

    for name in import_images(open_any(lab), archives, say):
        echo(name)


@command.command("gc")
@click.option("--yes", is_flag=True, help="Remove; without it, only say what would be removed.")
@json_option()
def gc(yes: bool, as_json: bool) -> None:
    """Remove images of older recipes, and interrupted builds and downloads.

    What an interrupted build left on hypervisors is removed, too, and so are copies there that no
    recipe uses any more. A disk that a machine is cloned from is kept.
    """
    from lab.machines import caches as images

    result = images.image_store().gc((), yes)
    copies = images.collect_copies(yes, say)
    sites = images.collect_sites(yes, say)
    if as_json:
        echo_json({**asdict(result), "hypervisors": copies, "installations": sites})
        return
    left = [f"{copy.hypervisor}: {name}" for copy in copies for name in copy.names]
    left += [f"{site.hypervisor}: {name}" for site in sites for name in site.names]
    paths = [*result.paths, *left]
    for path in paths:
        say(path)
    size = result.bytes + sum(copy.bytes for copy in copies)
    echo_collected(len(paths), size, "lab image gc", yes=yes)
